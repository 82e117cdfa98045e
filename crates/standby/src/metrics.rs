//! A status as Prometheus reads it.

use std::fmt::Write;

use crate::status::{CopyProgress, Retention, State, Status, WalStatus};

struct Metric<T> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&T) -> f64,
}

/// A metric per row: `name kind "help" = value;`.
macro_rules! metrics {
    ($($name:ident $kind:ident $help:literal = $value:expr;)*) => {
        &[$(Metric { name: stringify!($name), kind: stringify!($kind), help: $help, value: $value }),*]
    };
}

const METRICS: &[Metric<Status>] = metrics! {
    following gauge "1 while the log is followed, 0 while copying, waiting or stopped." = |status| f64::from(u8::from(status.state == State::Following));
    lag_seconds gauge "Age of the oldest committed transaction that readers do not see." = |status| status.lag.time.as_secs_f64();
    lag_bytes gauge "WAL that the primary has and readers do not see." = |status| status.lag.bytes as f64;
    received_lsn gauge "End of the last transaction received, as a number of bytes." = |status| status.received.0 as f64;
    visible_lsn gauge "End of the last transaction that readers see." = |status| status.visible.0 as f64;
    durable_lsn gauge "What was acknowledged to the primary as durable." = |status| status.durable.0 as f64;
    transactions_total counter "Transactions received." = |status| status.target.transactions as f64;
    changes_total counter "Row changes as the primary made them." = |status| status.target.changes as f64;
    rows_written_total counter "Row changes left after the net change of each epoch was taken." = |status| status.target.rows_written as f64;
    epochs_total counter "Epochs applied." = |status| status.target.epochs as f64;
    epoch_changes gauge "Row changes in the epoch applied last." = |status| status.target.epoch_changes as f64;
    deferred_total counter "Writes put off because an earlier one of the same row was not done, or epochs applied again in commit order." = |status| status.target.deferred as f64;
    pending_bytes gauge "Memory held by changes that are not applied." = |status| status.target.pending_bytes as f64;
    slot_kept_bytes gauge "WAL that the primary keeps for the slot." = |status| status.retention.kept_bytes.map_or(f64::NAN, |bytes| bytes as f64);
    slot_safe_bytes gauge "WAL that may be written until the primary removes what the slot needs; +Inf without a limit." = |status| safe_bytes(&status.retention);
    slot_wal_status gauge "wal_status of the slot: 0 reserved, 1 extended, 2 unreserved, 3 lost, -1 unknown." = |status| wal_status(status.retention.wal_status);
    missing_tables gauge "Tables of the primary that are wanted and not replicated, or not yet." = |status| status.missing_tables.len() as f64;
    left_out_tables gauge "Tables of the primary that are not wanted, or cannot be followed." = |status| status.left_out.len() as f64;
    check_complete_timestamp_seconds gauge "When all tables were compared with the primary's last; NaN if never." = |status| checked_at(status);
    check_rows_total counter "Rows compared with the primary's." = |status| status.check.as_ref().map_or(0.0, |check| check.rows as f64);
    check_differed_total counter "Rows that were not the primary's." = |status| status.check.as_ref().map_or(0.0, |check| check.differed as f64);
    check_repaired_total counter "Rows that were given the primary's values." = |status| status.check.as_ref().map_or(0.0, |check| check.repaired as f64);
    reconnects_total counter "Times that one of the servers was lost." = |status| status.reconnects as f64;
};

/// Only while the initial copy is made.
const COPYING: &[Metric<CopyProgress>] = metrics! {
    copy_bytes gauge "Bytes of the initial copy done." = |progress| progress.bytes_done as f64;
    copy_bytes_estimate gauge "Bytes of the initial copy expected." = |progress| progress.bytes_estimate as f64;
};

fn safe_bytes(retention: &Retention) -> f64 {
    match (retention.safe_bytes, retention.kept_bytes) {
        (Some(bytes), _) => bytes as f64,
        (None, Some(_)) => f64::INFINITY,
        (None, None) => f64::NAN,
    }
}

fn checked_at(status: &Status) -> f64 {
    let complete = status.check.as_ref().and_then(|check| check.complete);
    complete.map_or(f64::NAN, |(micros, _)| micros as f64 / 1e6)
}

fn wal_status(status: WalStatus) -> f64 {
    match status {
        WalStatus::Unknown => -1.0,
        WalStatus::Reserved => 0.0,
        WalStatus::Extended => 1.0,
        WalStatus::Unreserved => 2.0,
        WalStatus::Lost => 3.0,
    }
}

/// As Prometheus writes it.
fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        value => value.to_string(),
    }
}

/// The text format of Prometheus, version 0.0.4: of what is followed, with a label where it is one
/// of several databases.
pub fn prometheus(followed: &[(Option<String>, Status)]) -> String {
    let mut out = String::new();
    let all: Vec<_> = followed
        .iter()
        .map(|(of, status)| (label(of), status))
        .collect();
    put(METRICS, &all, &mut out);
    let copying: Vec<_> = all
        .into_iter()
        .filter_map(|(label, status)| match &status.state {
            State::Copying(progress) => Some((label, progress)),
            _ => None,
        })
        .collect();
    put(COPYING, &copying, &mut out);
    out
}

fn label(database: &Option<String>) -> String {
    let Some(database) = database else {
        return String::new();
    };
    let escaped = database
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{{database=\"{escaped}\"}}")
}

fn put<T>(metrics: &[Metric<T>], followed: &[(String, &T)], out: &mut String) {
    if followed.is_empty() {
        return;
    }
    for Metric {
        name,
        kind,
        help,
        value,
    } in metrics
    {
        let _ = write!(
            out,
            "# HELP hindcast_standby_{name} {help}\n# TYPE hindcast_standby_{name} {kind}\n"
        );
        for (label, of) in followed {
            let value = number(value(of));
            let _ = writeln!(out, "hindcast_standby_{name}{label} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_help_type_and_value() {
        let mut status = Status::default();
        status.lag.bytes = 42;
        status.retention.kept_bytes = Some(7);
        status.state = State::Copying(crate::status::CopyProgress::default());
        let text = prometheus(&[(None, status)]);
        assert!(text.contains("\nhindcast_standby_lag_bytes 42\n"), "{text}");
        assert!(text.contains("hindcast_standby_copy_bytes_estimate"));
        assert!(
            text.contains("\nhindcast_standby_slot_safe_bytes +Inf\n"),
            "{text}"
        );
        for lines in text.lines().collect::<Vec<_>>().chunks(3) {
            let name = lines[2].split(' ').next().unwrap();
            assert!(
                lines[0].starts_with(&format!("# HELP {name} ")),
                "{lines:?}"
            );
            assert!(
                lines[1] == format!("# TYPE {name} gauge")
                    || lines[1] == format!("# TYPE {name} counter"),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn each_of_several_databases_has_a_label() {
        let of = |database: &str, bytes| {
            let mut status = Status::default();
            status.lag.bytes = bytes;
            (Some(database.to_owned()), status)
        };
        let text = prometheus(&[of("shop", 1), of("a\"b\\c", 2)]);
        let lag: Vec<_> = text
            .lines()
            .filter(|line| line.contains("lag_bytes"))
            .collect();
        assert_eq!(
            lag[2..],
            [
                r#"hindcast_standby_lag_bytes{database="shop"} 1"#,
                r#"hindcast_standby_lag_bytes{database="a\"b\\c"} 2"#,
            ]
        );
        assert_eq!(lag.len(), 4);
    }
}
