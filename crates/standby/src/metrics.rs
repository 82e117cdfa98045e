//! A status as Prometheus reads it.

use std::fmt::Write;

use crate::status::{State, Status};

/// The text format of Prometheus, version 0.0.4.
pub fn prometheus(status: &Status) -> String {
    let mut out = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = write!(
            out,
            "# HELP hindcast_standby_{name} {help}\n# TYPE hindcast_standby_{name} {kind}\nhindcast_standby_{name} {value}\n"
        );
    };
    let target = &status.target;
    let following = f64::from(u8::from(status.state == State::Following));
    metric(
        "following",
        "gauge",
        "1 while the log is followed, 0 while copying, waiting or stopped.",
        following,
    );
    metric(
        "lag_seconds",
        "gauge",
        "Age of the oldest committed transaction that readers do not see.",
        status.lag.time.as_secs_f64(),
    );
    metric(
        "lag_bytes",
        "gauge",
        "WAL that the primary has and readers do not see.",
        status.lag.bytes as f64,
    );
    metric(
        "received_lsn",
        "gauge",
        "End of the last transaction received, as a number of bytes.",
        status.received.0 as f64,
    );
    metric(
        "visible_lsn",
        "gauge",
        "End of the last transaction that readers see.",
        status.visible.0 as f64,
    );
    metric(
        "durable_lsn",
        "gauge",
        "What was acknowledged to the primary as durable.",
        status.durable.0 as f64,
    );
    metric(
        "transactions_total",
        "counter",
        "Transactions received.",
        target.transactions as f64,
    );
    metric(
        "changes_total",
        "counter",
        "Row changes as the primary made them.",
        target.changes as f64,
    );
    metric(
        "rows_written_total",
        "counter",
        "Row changes left after the net change of each epoch was taken.",
        target.rows_written as f64,
    );
    metric(
        "epochs_total",
        "counter",
        "Epochs applied.",
        target.epochs as f64,
    );
    metric(
        "epoch_changes",
        "gauge",
        "Row changes in the epoch applied last.",
        target.epoch_changes as f64,
    );
    metric(
        "deferred_total",
        "counter",
        "Writes put off because an earlier one of the same row was not done, or epochs applied again in commit order.",
        target.deferred as f64,
    );
    metric(
        "pending_bytes",
        "gauge",
        "Memory held by changes that are not applied.",
        target.pending_bytes as f64,
    );
    metric(
        "reconnects_total",
        "counter",
        "Times that one of the servers was lost.",
        status.reconnects as f64,
    );
    if let State::Copying(progress) = &status.state {
        metric(
            "copy_bytes",
            "gauge",
            "Bytes of the initial copy done.",
            progress.bytes_done as f64,
        );
        metric(
            "copy_bytes_estimate",
            "gauge",
            "Bytes of the initial copy expected.",
            progress.bytes_estimate as f64,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_help_type_and_value() {
        let mut status = Status::default();
        status.lag.bytes = 42;
        status.state = State::Copying(crate::status::CopyProgress::default());
        let text = prometheus(&status);
        assert!(text.contains("\nhindcast_standby_lag_bytes 42\n"), "{text}");
        assert!(text.contains("hindcast_standby_copy_bytes_estimate"));
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
}
