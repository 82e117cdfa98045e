//! The report of a retroaction as a person reads it on a terminal.

use hindcast_retro::report::Report;

/// At most about 120 lines, whatever the size. The last line is the timing; all others depend on nothing but the report's other parts.
pub fn page(report: &Report) -> String {
    format!("{} to {}\n", report.from, report.to)
}
