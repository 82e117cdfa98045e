//! The report of a retroaction as one HTML file, with everything that was described.
//!
//! Self-contained: no script, no font, no image, nothing fetched. It may be passed on, printed, and opened years later. What comes from clients
//! or from the database is written through [`Escaped`] and into text only, never into attributes; the page's own policy forbids scripts besides.

use std::collections::HashSet;
use std::fmt::{self, Write};

use hindcast_retro::report::{Outcome, Report, Stopped};
use hindcast_trace::RequestId;

use super::format::{count, duration, is_active, thousands};
use super::retro::words;

/// Writing to a string cannot fail.
macro_rules! html {
    ($page:expr, $($arguments:tt)*) => {
        { let _ = write!($page.html, $($arguments)*); }
    };
}

mod sections;
#[cfg(test)]
mod tests;

const STYLE: &str = include_str!("retro.css");

pub fn page(report: &Report) -> String {
    let title = format!(
        "Retroaction of requests {} to {}: {}",
        report.from,
        report.to,
        kind(report)
    );
    let mut page = Page {
        html: String::new(),
        described: report
            .responses
            .changed
            .iter()
            .map(|change| change.request)
            .collect(),
        contents: Vec::new(),
    };
    html!(
        page,
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{}</title>
<style>
{STYLE}</style>
</head>
<body>
"#,
        escaped(&title)
    );
    answer(&mut page, report);
    let contents_at = page.html.len();
    html!(page, "</header>\n<main>\n");
    overview(&mut page, report);
    sections::checks(&mut page, &report.checks);
    sections::types(&mut page, report);
    sections::responses(&mut page, report);
    sections::transactions(&mut page, report);
    sections::state(&mut page, report);
    if let Some(selection) = &report.selection {
        sections::selection(&mut page, selection);
    }
    sections::remarks(&mut page, report);
    html!(page, "</main>\n");
    let contents = page.contents();
    page.html.insert_str(contents_at, &contents);
    footer(&mut page, report);
    html!(page, "</body>\n</html>\n");
    page.html
}

struct Page {
    html: String,
    /// Requests whose response is described, and can be linked to.
    described: HashSet<RequestId>,
    /// Sections so far, by id.
    contents: Vec<(&'static str, String)>,
}

/// Text as HTML: markup and [active](is_active) characters mean nothing in it.
#[derive(Clone, Copy)]
struct Escaped<'a>(&'a str);

fn escaped(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                c if is_active(c) => write!(f, "{}", c.escape_default())?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A value of any length: what is long is folded, what is very long is cut.
struct Long<'a>(&'a str);

impl Long<'_> {
    const FOLDED: usize = 240;
    const CUT: usize = 4_000;
}

impl fmt::Display for Long<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.chars().count();
        if length <= Self::FOLDED {
            return write!(f, "{}", escaped(self.0));
        }
        let head = |n: usize| {
            self.0
                .char_indices()
                .nth(n)
                .map_or(self.0, |(at, _)| &self.0[..at])
        };
        write!(
            f,
            "<details class=\"long\"><summary>{}… <small>{}</small></summary>{}",
            escaped(head(80)),
            count(length as u64, "character"),
            escaped(head(Self::CUT))
        )?;
        if length > Self::CUT {
            write!(f, "… <small>cut here</small>")?;
        }
        f.write_str("</details>")
    }
}

/// A column's value; NULL is told from the word.
struct Cell<'a>(Option<&'a str>);

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("<i class=\"null\">NULL</i>"),
            Some("") => f.write_str("<i class=\"null\">empty</i>"),
            Some(text) => write!(f, "{}", Long(text)),
        }
    }
}

impl Page {
    fn section(&mut self, id: &'static str, title: &str) {
        self.contents.push((id, title.to_owned()));
        html!(self, "<section id=\"{id}\">\n<h2>{}</h2>\n", escaped(title));
    }

    /// Known once all sections are there.
    fn contents(&self) -> String {
        let mut contents = String::from("<nav>");
        for (id, title) in &self.contents {
            let _ = write!(contents, "<a href=\"#{id}\">{}</a> ", escaped(title));
        }
        contents.push_str("</nav>\n");
        contents
    }

    fn end(&mut self) {
        html!(self, "</section>\n");
    }

    /// A table that scrolls by itself under its heading.
    fn table(&mut self, class: &str, headings: &[&str]) {
        html!(
            self,
            "<div class=\"scroll\"><table class=\"{class}\">\n<thead><tr>"
        );
        for heading in headings {
            html!(self, "<th>{}</th>", escaped(heading));
        }
        html!(self, "</tr></thead>\n<tbody>\n");
    }

    fn end_table(&mut self) {
        html!(self, "</tbody>\n</table></div>\n");
    }

    /// A request's number, linked to what its response was if that is on this page.
    fn request(&self, request: RequestId) -> String {
        if self.described.contains(&request) {
            format!("<a href=\"#r{request}\">request {request}</a>")
        } else {
            format!("request {request}")
        }
    }

    fn note(&mut self, text: &str) {
        html!(self, "<p class=\"note\">{}</p>\n", escaped(text));
    }
}

fn kind(report: &Report) -> &'static str {
    match report.outcome {
        Outcome::Faithful => "faithful",
        Outcome::Different => "different",
        Outcome::Stopped { .. } => "stopped",
    }
}

fn answer(page: &mut Page, report: &Report) {
    let headline = words::headline(report);
    let mut letters = headline.chars();
    let headline: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(letters)
        .collect();
    html!(
        page,
        "<header class=\"{}\">\n<p class=\"kicker\">Hindcast retroaction of requests {} to {}</p>\n<h1>{}</h1>\n",
        kind(report),
        report.from,
        report.to,
        Long(&headline)
    );
    if let Outcome::Stopped { why } = &report.outcome {
        stopped(page, why);
    }
    let findings = words::findings(report);
    html!(page, "<dl class=\"findings\">\n");
    for (class, label, list) in [
        ("gone", "Gone", &findings.gone),
        ("new", "New", &findings.new),
        ("still", "Still there", &findings.still),
        ("changed", "Changed", &findings.changed),
        ("unknown", "Not known", &findings.unknown),
    ] {
        if !list.is_empty() {
            html!(page, "<div class=\"{class}\"><dt>{label}</dt>");
            for finding in list {
                html!(page, "<dd>{}</dd>", escaped(finding));
            }
            html!(page, "</div>\n");
        }
    }
    html!(page, "</dl>\n");
}

fn stopped(page: &mut Page, why: &Stopped) {
    let (what, lines, in_flight) = match why {
        Stopped::ServiceExited {
            last_lines,
            in_flight,
            ..
        } => ("Its last words", last_lines, in_flight),
        Stopped::Hung {
            waits, in_flight, ..
        } => ("What was waiting", waits, in_flight),
    };
    if !lines.is_empty() {
        html!(page, "<p>{what}:</p>\n<pre>");
        for line in lines {
            html!(page, "{}\n", Long(line));
        }
        html!(page, "</pre>\n");
    }
    if !in_flight.is_empty() {
        html!(
            page,
            "<p>Sent and not answered then: {}.</p>\n",
            words::some_of(in_flight, 100)
        );
    }
    html!(page, "<p>What follows was seen up to there.</p>\n");
}

fn overview(page: &mut Page, report: &Report) {
    let counts = &report.counts;
    page.section("overview", "Overview");
    bar(
        page,
        "Requests",
        &[
            (counts.requests_executed, "same", "executed"),
            (counts.requests_skipped, "changed", "skipped"),
            (
                counts.requests_not_selected,
                "left",
                "not selected, because they cannot matter",
            ),
        ],
    );
    bar(
        page,
        "Responses of executed requests",
        &[
            (
                counts
                    .requests_executed
                    .saturating_sub(counts.responses_changed),
                "same",
                "the same",
            ),
            (counts.responses_changed, "changed", "changed"),
        ],
    );
    bar(
        page,
        "Transactions",
        &[
            (counts.same, "same", "the same"),
            (counts.same_failure, "left", "failing as before"),
            (counts.changed, "changed", "changed"),
            (counts.newly_succeeding, "gone", "newly succeeding"),
            (counts.newly_failing, "new", "newly failing"),
            (counts.deleted, "deleted", "deleted"),
            (counts.added, "added", "added"),
        ],
    );
    let mut notes = words::order_counts(counts);
    if counts.retries > 0 {
        notes.push(format!(
            "{} of the added are retries",
            thousands(counts.retries)
        ));
    }
    if counts.ghosts > 0 {
        notes.push(format!("{} of no request", count(counts.ghosts, "ghost")));
    }
    for note in notes {
        page.note(&note);
    }
    let change = &report.change;
    html!(page, "<h3>What ran</h3>\n<dl class=\"facts\">\n");
    if !change.app.is_empty() {
        html!(
            page,
            "<dt>service</dt><dd><code>{}</code></dd>\n",
            Long(&change.app)
        );
    }
    for migration in &change.migrations {
        html!(
            page,
            "<dt>migration</dt><dd><code>{}</code></dd>\n",
            Long(migration)
        );
    }
    if let Some(isolation) = &change.isolation {
        html!(page, "<dt>isolation</dt><dd>{}</dd>\n", Long(isolation));
    }
    for skipped in &change.skipped {
        html!(page, "<dt>skipped</dt><dd>{}</dd>\n", Long(skipped));
    }
    html!(
        page,
        "<dt>compared with</dt><dd>{}</dd>\n</dl>\n",
        escaped(&words::baseline(&report.state.against))
    );
    page.end();
}

/// Parts of a whole as one bar, with a legend. What there is none of is left out.
fn bar(page: &mut Page, title: &str, parts: &[(u64, &str, &str)]) {
    let whole: u64 = parts
        .iter()
        .map(|(n, ..)| n)
        .fold(0, |sum, n| sum.saturating_add(*n));
    if whole == 0 {
        return;
    }
    html!(
        page,
        "<figure><figcaption>{title}: {}</figcaption>\n<svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
        thousands(whole)
    );
    let present = parts.iter().filter(|(n, ..)| *n > 0);
    // One of ten thousand is to be seen, too.
    let least = 4.0;
    let room = 1000.0 - least * present.clone().count() as f64;
    let mut x = 0.0;
    for (n, class, _) in present.clone() {
        let width = least + room * (*n as f64 / whole as f64);
        html!(
            page,
            "<rect class=\"{class}\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"10\"/>"
        );
        x += width;
    }
    html!(page, "</svg>\n<ul class=\"legend\">");
    for (n, class, what) in present {
        html!(page, "<li class=\"{class}\">{} {what}</li>", thousands(*n));
    }
    html!(page, "</ul></figure>\n");
}

fn footer(page: &mut Page, report: &Report) {
    let timing = &report.timing;
    let ratio = timing.run_us as f64 / timing.original_us.max(1) as f64;
    html!(
        page,
        "<footer>\n<p><code>hindcast show 17</code> shows a request as it was recorded, <code>hindcast show t42</code> a transaction.</p>\n<p>Hindcast {}. {} for what took {} ({ratio:.2}×), after {} of preparation; comparing took {}.</p>\n</footer>\n",
        env!("CARGO_PKG_VERSION"),
        duration(timing.run_us),
        duration(timing.original_us),
        duration(timing.prepare_us),
        duration(timing.compare_us)
    );
}
