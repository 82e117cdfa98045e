use expect_test::expect_file;

use maud::Render;

use super::{Cell, Long, STYLE, Text, page};
use crate::render::retro::samples;

/// Elements and attributes that the page is made of. Nothing in it may bring others.
const ELEMENTS: &str = "html head nav meta title style body header main footer section article figure figcaption svg rect \
    h1 h2 h3 h4 p pre code small b i br a ul ol li dl dt dd div span details summary table thead tbody tr th td del ins";
const ATTRIBUTES: &str = "lang charset name content http-equiv class id href open viewBox preserveAspectRatio aria-hidden x width height";
const VOID: &str = "meta br";

/// Every element is closed in order, known, and has only known attributes whose values are the
/// page's own.
fn assert_well_formed(html: &str) {
    let has = |list: &str, word: &str| list.split_whitespace().any(|known| known == word);
    let html = html
        .strip_prefix("<!DOCTYPE html>")
        .expect("a document type");
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html.split('<');
    assert_eq!(rest.next().unwrap().trim(), "");
    for piece in rest {
        let (tag, text) = piece.split_once('>').expect("a closed tag");
        assert!(
            !text.contains('>') || open.last() == Some(&"style") || tag == "style",
            "{text}"
        );
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closes another element");
            continue;
        }
        let tag = tag.trim_end_matches('/');
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(has(ELEMENTS, name), "element {name}");
        while !attributes.trim().is_empty() {
            let end = attributes.find(['=', ' ']).unwrap_or(attributes.len());
            let attribute = attributes[..end].trim();
            assert!(
                attribute.is_empty() || has(ATTRIBUTES, attribute),
                "attribute {attribute}"
            );
            attributes = &attributes[end..];
            if let Some(value) = attributes.strip_prefix("=\"") {
                attributes = value.split_once('"').expect("a closed value").1;
            } else {
                attributes = attributes.get(1..).unwrap_or_default();
            }
        }
        if !has(VOID, name) {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "left open");
}

fn shown(part: impl Render) -> String {
    part.render().into_string()
}

#[test]
fn a_small_report() {
    // The style sheet is a file of its own. Lines are for reading.
    let mut page = page(&samples::moodle_upsert()).replace(STYLE, "…");
    for tag in [
        "head", "title", "body", "header", "nav", "main", "footer", "section", "article", "figure",
        "details", "p", "h3", "div", "dt", "tr",
    ] {
        for start in [format!("<{tag}>"), format!("<{tag} ")] {
            page = page.replace(&start, &format!("\n{start}"));
        }
    }
    page.push('\n');
    expect_file!["small.html"].assert_eq(&page);
}

#[test]
fn every_report_is_well_formed() {
    for report in [
        samples::faithful(),
        samples::moodle_merge(),
        samples::moodle_upsert(),
        samples::ten_thousand(),
        samples::crashed(),
        samples::hung(),
        samples::selected(),
        samples::migrated(),
        samples::without_key(),
        samples::without_baseline(),
    ] {
        assert_well_formed(&page(&report));
    }
}

#[test]
fn what_comes_from_clients_is_text() {
    let page = page(&samples::hostile());
    assert_well_formed(&page);
    assert!(!page.contains("<script") && !page.contains('\u{202e}'));
    let active = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!page.contains(active));
    // It is there all the same: a reader may look into what happened.
    assert!(page.contains(
        "&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;\\u{1b}[2J\\u{0}\\u{202e}gpj.exe"
    ));
}

#[test]
fn nothing_is_fetched() {
    let page = page(&samples::ten_thousand());
    for sign in [
        "src=", "url(", "@import", "http://", "https://", "<link", "<script",
    ] {
        assert!(!page.contains(sign), "{sign}");
    }
}

#[test]
fn long_values_are_folded_and_very_long_ones_cut() {
    assert_eq!(shown(Long("a<b")), "a&lt;b");
    let long = shown(Long(&"<".repeat(300)));
    assert!(
        long.starts_with("<details class=\"long\"><summary>&lt;"),
        "{long}"
    );
    assert!(long.contains("300 characters"));
    let longest = shown(Long(&"ä".repeat(1_000_000)));
    assert!(longest.contains("1,000,000 characters") && longest.len() < 10_000);
}

#[test]
fn null_is_told_from_the_word() {
    assert_ne!(shown(Cell(None)), shown(Cell(Some("NULL"))));
    assert_ne!(shown(Cell(Some(""))), shown(Cell(Some("empty"))));
    assert_eq!(shown(Text("a\r\n\tb")), "a\\r\n\tb");
}
