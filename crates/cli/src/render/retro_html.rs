//! The report of a retroaction as one self-contained HTML file.

use hindcast_retro::report::Report;

pub fn page(report: &Report) -> String {
    format!(
        "<!doctype html><title>{} to {}</title>",
        report.from, report.to
    )
}
