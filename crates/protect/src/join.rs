//! A backup that comes while the program runs.
//!
//! ```text
//!   introduces   in a thread of its own, for it may take long
//!   catches up   is sent the log from its beginning, or a checkpoint and the log from there,
//!                and replays it; answers are not held, and the
//!                backup must not take over
//!   is close     it has replayed all that there was within the last second: the caller holds
//!                answers from here on
//! ```
//!
//! Whatever fails until then, the program runs on as it did.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use hindcast_exec::checkpoint::Checkpoint;

use crate::channel::Channel;
use crate::error::{ProtectError, in_one_line};
use crate::introduce::{Introduction, introduce};
use crate::message::{ALIVE_EVERY, Progress, ToBackup, ToPrimary};
use crate::ship::Shipper;

/// How long the backup may take to replay what comes at last.
const CLOSE: Duration = Duration::from_secs(1);
/// It says more often that it is there.
const SILENCE: Duration = Duration::from_secs(10);
const TELL_EVERY: Duration = Duration::from_millis(500);
/// Bytes of the log that are read at once, and that may wait to be sent.
const AT_ONCE: u64 = 4 << 20;
/// Bytes of a checkpoint in one message.
const PIECE: u64 = 1 << 20;

pub struct Joining {
    pub to: String,
    /// Who has asked for it, and waits.
    pub visitor: Option<Channel>,
    pub progress: Progress,
    stage: Stage,
    told: Instant,
    /// Where the log is, and up to how many bytes it is kept.
    folder: PathBuf,
    keep: u64,
    /// What the log begins with.
    from: Option<Checkpoint>,
}

enum Stage {
    Introduces(Receiver<Result<Channel, ProtectError>>),
    CatchesUp(Box<CatchingUp>),
    Over,
}

struct CatchingUp {
    channel: Channel,
    /// What is left of a checkpoint.
    image: VecDeque<(String, File)>,
    shipper: Shipper,
    mark: u64,
    /// When it was asked whether it has replayed everything.
    asked: Option<Instant>,
    heard: Instant,
    spoken: Instant,
}

/// What a step came to.
pub enum Step {
    On,
    /// The backup has accepted the program.
    Accepted,
    Failed {
        why: String,
        hint: String,
    },
    Close(Box<(Channel, Shipper)>),
}

fn failed(why: impl Into<String>, hint: &str) -> Step {
    Step::Failed {
        why: why.into(),
        hint: hint.to_owned(),
    }
}

const AGAIN: &str = "start it again, and attach it again";

impl Joining {
    /// `keep`: up to how many bytes the log in `folder` is kept.
    pub fn begin(
        what: Introduction,
        (folder, keep): (&Path, u64),
        from: Option<Checkpoint>,
        visitor: Channel,
    ) -> Joining {
        let to = what.to.clone();
        let (says, hears) = channel();
        std::thread::spawn(move || {
            // Nobody listens any more if the attempt was given up.
            let _ = says.send(introduce(what).map(|(channel, _)| channel));
        });
        Joining {
            to,
            visitor: Some(visitor),
            progress: Progress::default(),
            stage: Stage::Introduces(hears),
            told: Instant::now(),
            folder: folder.to_owned(),
            keep,
            from,
        }
    }

    /// What to wait for, once there is something.
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::CatchesUp(catching_up) => Some(catching_up.channel.as_fd()),
            Stage::Introduces(_) | Stage::Over => None,
        }
    }

    pub fn step(&mut self) -> Step {
        self.tell();
        match &mut self.stage {
            Stage::Introduces(hears) => match hears.try_recv() {
                Err(TryRecvError::Empty) => Step::On,
                Err(TryRecvError::Disconnected) => failed("it could not be asked", AGAIN),
                Ok(Err(error)) => failed(in_one_line(&error), &error.hint()),
                Ok(Ok(channel)) => {
                    let from = self.from.as_ref();
                    let image = from.map_or_else(|| Ok(VecDeque::new()), Checkpoint::files);
                    let Ok(image) = image else {
                        return failed("its checkpoint cannot be read", AGAIN);
                    };
                    self.stage = Stage::CatchesUp(Box::new(CatchingUp {
                        channel,
                        image,
                        shipper: Shipper::new(&self.folder, self.keep, from),
                        mark: 0,
                        asked: None,
                        heard: Instant::now(),
                        spoken: Instant::now(),
                    }));
                    Step::Accepted
                }
            },
            Stage::CatchesUp(catching_up) => {
                match catching_up.step(&mut self.progress, self.keep) {
                    Caught::Not => Step::On,
                    Caught::Failed(why, hint) => failed(why, hint),
                    Caught::Up => match std::mem::replace(&mut self.stage, Stage::Over) {
                        Stage::CatchesUp(done) => {
                            let done = *done;
                            Step::Close(Box::new((done.channel, done.shipper)))
                        }
                        _ => Step::On,
                    },
                }
            }
            Stage::Over => Step::On,
        }
    }

    /// The program has ended: there is nothing to catch up with.
    pub fn ended(mut self) {
        if let Stage::CatchesUp(catching_up) = &mut self.stage {
            catching_up.channel.put(&ToBackup::Ended);
            let _ = catching_up.channel.flush();
        }
        if let Some(visitor) = self.visitor {
            crate::doors::refuse(visitor, "the program has ended", "");
        }
    }

    fn tell(&mut self) {
        if self.told.elapsed() < TELL_EVERY {
            return;
        }
        self.told = Instant::now();
        if let Some(visitor) = &mut self.visitor {
            visitor.put(&ToPrimary::CatchesUp(self.progress));
            let _ = visitor.flush();
        }
    }
}

enum Caught {
    Not,
    Up,
    Failed(String, &'static str),
}

impl CatchingUp {
    fn step(&mut self, progress: &mut Progress, keep: u64) -> Caught {
        let filled = self.channel.fill();
        loop {
            match self.channel.take::<ToPrimary>() {
                Ok(None) => break,
                Ok(Some(ToPrimary::Replayed(events))) => progress.replayed = events,
                Ok(Some(ToPrimary::Mark(mark))) if mark == self.mark => {
                    if let Some(asked) = self.asked.take()
                        && asked.elapsed() < CLOSE
                    {
                        return Caught::Up;
                    }
                }
                Ok(Some(ToPrimary::Dropped(why))) => {
                    return Caught::Failed(format!("the copy there was dropped: {why}"), AGAIN);
                }
                Ok(Some(_)) => {}
                Err(error) => return Caught::Failed(error.to_string(), AGAIN),
            }
            self.heard = Instant::now();
        }
        if filled.is_err() {
            return Caught::Failed("it has ended".to_owned(), AGAIN);
        }
        if self.heard.elapsed() > SILENCE {
            let why = format!("it was not heard for {SILENCE:?}");
            return Caught::Failed(why, "look what it does, end it, and attach another");
        }
        match self.send(progress) {
            Err(why) => Caught::Failed(why, AGAIN),
            Ok(()) if progress.of / 2 > keep => Caught::Failed(
                format!(
                    "the log has grown to {} bytes, and it has not caught up: the program is faster",
                    progress.of
                ),
                "attach it again when there is less to do, with a larger --keep",
            ),
            Ok(()) => Caught::Not,
        }
    }

    /// Before the log.
    fn send_image(&mut self) -> io::Result<()> {
        while let Some((name, file)) = self.image.front_mut()
            && (self.channel.waiting() as u64) < AT_ONCE
        {
            let offset = file.stream_position()?;
            let mut bytes = Vec::new();
            file.take(PIECE).read_to_end(&mut bytes)?;
            match bytes.is_empty() {
                true => drop(self.image.pop_front()),
                false => self.channel.put(&ToBackup::Bytes {
                    name: name.clone(),
                    offset,
                    bytes,
                }),
            }
        }
        Ok(())
    }

    fn send(&mut self, progress: &mut Progress) -> Result<(), String> {
        self.send_image()
            .map_err(|error| format!("the checkpoint cannot be sent: {error}"))?;
        let channel = &mut self.channel;
        if self.image.is_empty() && (channel.waiting() as u64) < AT_ONCE {
            let collected = self
                .shipper
                .collect(Some(AT_ONCE), &mut |message| channel.put(&message));
            let collected =
                collected.map_err(|error| format!("the log cannot be sent: {error}"))?;
            if !collected.is_cut && self.asked.is_none() {
                self.mark += 1;
                self.asked = Some(Instant::now());
                channel.put(&ToBackup::Mark(self.mark));
            }
        }
        if self.spoken.elapsed() >= ALIVE_EVERY {
            self.spoken = Instant::now();
            channel.put(&ToBackup::Alive);
        }
        (progress.of, progress.sent) = self.shipper.sizes();
        channel.flush().map_err(|_| "it has ended".to_owned())
    }
}
