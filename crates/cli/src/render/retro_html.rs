//! The report of a retroaction as one HTML file, with everything that was described.
//!
//! Self-contained: no script, no font, no image, nothing fetched. It may be passed on, printed, and
//! opened years later. Templates escape what they insert; text from clients or from the database
//! also goes through [`Text`], into text only, never into attributes. The page's own policy forbids
//! scripts besides.

use std::collections::HashSet;
use std::fmt::Write;

use hindcast_retro::report::{Outcome, Report, Stopped};
use hindcast_trace::RequestId;
use maud::{DOCTYPE, Escaper, Markup, PreEscaped, Render, html};

use super::format::{count, duration, is_active, thousands};
use super::retro::{given_up, words};

mod sections;
#[cfg(test)]
mod tests;

const STYLE: &str = include_str!("retro.css");

pub fn page(report: &Report) -> String {
    let changed = report.responses.changed.iter();
    let described = Described(changed.map(|change| change.request).collect());
    let sections: Vec<Section> = [
        Some(overview(report)),
        sections::checks(&report.checks),
        sections::types(report),
        sections::responses(report, &described),
        sections::transactions(report, &described),
        Some(sections::state(report, &described)),
        report.selection.as_ref().map(sections::selection),
        sections::remarks(report),
    ]
    .into_iter()
    .flatten()
    .collect();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { "Retroaction of requests " (report.from) " to " (report.to) ": " (kind(report)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header class=(kind(report)) {
                    (answer(report))
                    nav { @for section in &sections { a href={ "#" (section.id) } { (section.title) } " " } }
                }
                main {
                    @for section in &sections {
                        section id=(section.id) { h2 { (section.title) } (section.body) }
                    }
                }
                (footer(report))
            }
        }
    }
    .into_string()
}

struct Section {
    id: &'static str,
    title: String,
    body: Markup,
}

/// Requests whose response is described, and can be linked to.
struct Described(HashSet<RequestId>);

impl Described {
    /// A request's number, linked to what its response was if that is on this page.
    fn request(&self, request: RequestId) -> Markup {
        html! {
            @if self.0.contains(&request) { a href={ "#r" (request) } { "request " (request) } }
            @else { "request " (request) }
        }
    }
}

/// Text as HTML: [active](is_active) characters mean as little in it as markup.
struct Text<'a>(&'a str);

impl Render for Text<'_> {
    fn render_to(&self, buffer: &mut String) {
        let mut escaper = Escaper::new(buffer);
        for c in self.0.chars() {
            // Writing to a string cannot fail.
            let _ = match c {
                '\n' | '\t' => escaper.write_char(c),
                c if is_active(c) => write!(escaper, "{}", c.escape_default()),
                c => escaper.write_char(c),
            };
        }
    }
}

/// A value of any length: what is long is folded, what is very long is cut.
struct Long<'a>(&'a str);

impl Long<'_> {
    const FOLDED: usize = 240;
    const CUT: usize = 4_000;
}

impl Render for Long<'_> {
    fn render(&self) -> Markup {
        let length = self.0.chars().count();
        let head = |n: usize| {
            let end = self.0.char_indices().nth(n);
            Text(end.map_or(self.0, |(at, _)| &self.0[..at]))
        };
        html! {
            @if length <= Self::FOLDED { (Text(self.0)) }
            @else {
                details.long {
                    summary { (head(80)) "… " small { (count(length as u64, "character")) } }
                    (head(Self::CUT))
                    @if length > Self::CUT { "… " small { "cut here" } }
                }
            }
        }
    }
}

/// A column's value; NULL is told from the word.
struct Cell<'a>(Option<&'a str>);

impl Render for Cell<'_> {
    fn render(&self) -> Markup {
        match self.0 {
            None => html! { i.null { "NULL" } },
            Some("") => html! { i.null { "empty" } },
            Some(text) => Long(text).render(),
        }
    }
}

/// A table that scrolls by itself under its heading.
fn table(class: &str, headings: &[&str], rows: Markup) -> Markup {
    html! {
        div.scroll {
            table class=(class) {
                thead { tr { @for heading in headings { th { (Text(heading)) } } } }
                tbody { (rows) }
            }
        }
    }
}

fn note(text: &str) -> Markup {
    html! { p.note { (Text(text)) } }
}

fn kind(report: &Report) -> &'static str {
    match report.outcome {
        Outcome::Faithful => "faithful",
        Outcome::Different => "different",
        Outcome::Stopped { .. } => "stopped",
    }
}

fn answer(report: &Report) -> Markup {
    let headline = words::headline(report);
    let mut letters = headline.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let headline: String = first.chain(letters).collect();
    let findings = words::findings(report);
    let findings = [
        ("gone", "Gone", &findings.gone),
        ("new", "New", &findings.new),
        ("still", "Still there", &findings.still),
        ("changed", "Changed", &findings.changed),
        ("unknown", "Not known", &findings.unknown),
    ];
    html! {
        p.kicker { "Hindcast retroaction of requests " (report.from) " to " (report.to) }
        h1 { (Long(&headline)) }
        @if let Outcome::Stopped { why } = &report.outcome { (stopped(why)) }
        dl.findings {
            @for (class, label, list) in findings {
                @if !list.is_empty() {
                    div class=(class) { dt { (label) } @for finding in list { dd { (Text(finding)) } } }
                }
            }
        }
    }
}

fn stopped(why: &Stopped) -> Markup {
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
    html! {
        @if !lines.is_empty() {
            p { (what) ":" }
            pre { @for line in lines { (Long(line)) "\n" } }
        }
        @if !in_flight.is_empty() {
            p { "Sent and not answered then: " (words::some_of(in_flight, 100)) "." }
        }
        p { "What follows was seen up to there." }
    }
}

fn overview(report: &Report) -> Section {
    let (counts, change) = (&report.counts, &report.change);
    let executed = counts.requests_executed;
    let mut notes = words::order_counts(counts);
    if counts.retries > 0 {
        let retries = thousands(counts.retries);
        notes.push(format!("{retries} of the added are retries"));
    }
    if counts.ghosts > 0 {
        notes.push(format!("{} of no request", count(counts.ghosts, "ghost")));
    }
    let requests = [
        (executed, "same", "executed"),
        (counts.requests_unanswered, "changed", "not answered"),
        (counts.requests_not_sent, "changed", "not sent"),
        (counts.requests_skipped, "changed", "skipped"),
        (
            counts.requests_not_selected,
            "left",
            "not selected, because they cannot matter",
        ),
    ];
    let same = executed.saturating_sub(counts.responses_changed);
    let responses = [
        (same, "same", "the same"),
        (counts.responses_changed, "changed", "changed"),
    ];
    let transactions = [
        (counts.same, "same", "the same"),
        (counts.same_failure, "left", "failing as before"),
        (counts.changed, "changed", "changed"),
        (counts.newly_succeeding, "gone", "newly succeeding"),
        (counts.newly_failing, "new", "newly failing"),
        (counts.deleted, "deleted", "deleted"),
        (counts.added, "added", "added"),
    ];
    let body = html! {
        (bar("Requests", &requests))
        (bar("Responses of executed requests", &responses))
        (bar("Transactions", &transactions))
        @for text in &notes { (note(text)) }
        h3 { "What ran" }
        dl.facts {
            @if !change.app.is_empty() { dt { "service" } dd { code { (Long(&change.app)) } } }
            @for migration in &change.migrations { dt { "migration" } dd { code { (Long(migration)) } } }
            @if let Some(isolation) = &change.isolation { dt { "isolation" } dd { (Long(isolation)) } }
            @for skipped in &change.skipped { dt { "skipped" } dd { (Long(skipped)) } }
            dt { "compared with" } dd { (Text(&words::baseline(&report.state.against))) }
        }
    };
    Section {
        id: "overview",
        title: "Overview".to_owned(),
        body,
    }
}

/// Parts of a whole as one bar, with a legend. What there is none of is left out.
fn bar(title: &str, parts: &[(u64, &str, &str)]) -> Markup {
    let whole = parts
        .iter()
        .fold(0u64, |sum, (n, ..)| sum.saturating_add(*n));
    if whole == 0 {
        return html! {};
    }
    let present: Vec<_> = parts.iter().filter(|(n, ..)| *n > 0).collect();
    // One of ten thousand is to be seen, too.
    let least = 4.0;
    let room = 1000.0 - least * present.len() as f64;
    let mut x = 0.0;
    let rectangles = present.iter().map(|(n, class, _)| {
        let (start, width) = (x, least + room * (*n as f64 / whole as f64));
        x += width;
        (class, format!("{start:.1}"), format!("{width:.1}"))
    });
    html! {
        figure {
            figcaption { (title) ": " (thousands(whole)) }
            svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
                @for (class, x, width) in rectangles { rect class=(class) x=(x) width=(width) height="10" {} }
            }
            ul.legend {
                @for (n, class, what) in &present { li class=(class) { (thousands(*n)) " " (what) } }
            }
        }
    }
}

fn footer(report: &Report) -> Markup {
    let timing = &report.timing;
    let ratio = timing.run_us as f64 / timing.original_us.max(1) as f64;
    let (run, original) = (duration(timing.run_us), duration(timing.original_us));
    let (prepare, compare) = (duration(timing.prepare_us), duration(timing.compare_us));
    html! {
        footer {
            p {
                code { "hindcast show 17" } " shows a request as it was recorded, "
                code { "hindcast show t42" } " a transaction."
            }
            p {
                "Hindcast " (env!("CARGO_PKG_VERSION")) ". " (run) " for what took " (original) " ("
                (format!("{ratio:.2}")) "×), after " (prepare) " of preparation; comparing took " (compare) (given_up(timing)) "."
            }
        }
    }
}
