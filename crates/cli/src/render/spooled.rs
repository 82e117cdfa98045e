//! How far what a service did is in its recording.

use hindcast_gateway::record::HowFar;
use hindcast_trace::{Location, Micros, Spooled};

use super::format::{bytes, time};

/// Of nobody who works has been heard for longer than this, in microseconds.
const LONG: Micros = 30_000_000;

/// `None`: there is nothing to say.
pub fn line(spooled: &Spooled, far: &HowFar, trace: &Location, now: Micros) -> Option<String> {
    let recorder = spooled.recorder;
    if spooled.in_use && far.read >= far.total {
        return None;
    }
    let percent = far.read * 100 / far.total.max(1);
    let part = format!(
        "{percent} % ({} of {}) of what its service did",
        bytes(far.read),
        bytes(far.total)
    );
    let heard = match far.heard {
        0 => "it has not begun".to_owned(),
        heard => format!("heard of {} ago", ago(now - heard)),
    };
    let recover = format!("`hindcast recover --trace {trace}`");
    Some(match (spooled.in_use, far.is_whole) {
        (true, _) if far.heard != 0 && now - far.heard > LONG => format!(
            "Recorder {recorder} has put {part} into the recording, and was {heard}: it is stopped, or all processors are \
             busy with something else. If it is killed, {recover} goes on"
        ),
        (true, _) => format!(
            "Recorder {recorder} is still putting what its service did into the recording: {part} is there, {heard}"
        ),
        (false, true) => format!(
            "Recorder {recorder} is gone, and put {part} into the recording{}. Nobody goes on with it: {recover} does",
            last(far.heard)
        ),
        (false, false) => format!(
            "Recorder {recorder} is gone, and put {part} into the recording{}. The rest is lost, since the spool had \
             become too large to be kept from its beginning (--spool-max): {recover} removes it",
            last(far.heard)
        ),
    })
}

fn last(heard: Micros) -> String {
    match heard {
        0 => String::new(),
        heard => format!(" by {} UTC", time(heard)),
    }
}

fn ago(micros: Micros) -> String {
    match micros.max(0) / 1_000_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(in_use: bool, far: HowFar, now: Micros, expected: &str) {
        let spooled = Spooled {
            recorder: 3,
            folder: "/t/wal/r3.spool".into(),
            in_use,
        };
        let said = line(&spooled, &far, &Location::folder("/t"), now).unwrap_or_default();
        assert_eq!(said, expected);
    }

    #[test]
    fn how_far_it_is_when_it_was_heard_of_and_what_to_do() {
        let far = HowFar {
            read: 5_000_000,
            total: 20_000_000,
            heard: 1_700_000_000_000_000,
            is_whole: true,
        };
        let part = "25 % (5000.0 kB of 20.0 MB) of what its service did";
        let soon = far.heard + 2_000_000;
        check(
            true,
            far,
            soon,
            &format!(
                "Recorder 3 is still putting what its service did into the recording: {part} is there, heard of 2 s ago"
            ),
        );
        check(
            true,
            far,
            far.heard + 300_000_000,
            &format!(
                "Recorder 3 has put {part} into the recording, and was heard of 5 min ago: it is stopped, or all processors are \
                 busy with something else. If it is killed, `hindcast recover --trace /t` goes on"
            ),
        );
        let gone = format!(
            "Recorder 3 is gone, and put {part} into the recording by 2023-11-14 22:13:20.000 UTC."
        );
        check(
            false,
            far,
            soon,
            &format!("{gone} Nobody goes on with it: `hindcast recover --trace /t` does"),
        );
        let cut = HowFar {
            is_whole: false,
            ..far
        };
        check(
            false,
            cut,
            soon,
            &format!(
                "{gone} The rest is lost, since the spool had become too large to be kept from its beginning (--spool-max): \
                 `hindcast recover --trace /t` removes it"
            ),
        );
        let all = HowFar {
            read: far.total,
            ..far
        };
        check(true, all, soon, "");
    }
}
