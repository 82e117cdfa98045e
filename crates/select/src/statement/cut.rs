//! Texts of which only the beginning was kept.
//!
//! What makes statements long is nearly always a list of values: rows to insert, ids to look for.
//! Where a text was cut in the middle of such a list, it is taken to have gone on like that, and to
//! have ended with it.

/// Parameters that make a list in brackets one that can be expected to go on.
const LIST_MIN: usize = 50;

/// Rows that do so for `VALUES`: rows are alike.
const ROWS_MIN: usize = 2;

/// The same statement with a shorter list, if it was cut in the middle of a long one.
pub(super) fn mended(text: &str) -> Option<String> {
    let kept = text.strip_suffix('…')?;
    let levels = open_levels(kept)?;
    // Outer lists first: they lose the least by being cut at their last item.
    let (depth, end) = levels.iter().enumerate().find_map(|(depth, level)| {
        if let Some(rows) = &level.rows
            && rows.complete >= ROWS_MIN
        {
            return Some((depth, rows.end));
        }
        let long = kept[level.start..].matches('$').count() >= LIST_MIN;
        let plain = levels[depth..].iter().all(|level| level.plain);
        (depth > 0 && long && plain).then_some((depth, level.comma?))
    })?;
    let closing = levels[1..=depth].iter().rev().map(|level| level.closing);
    Some(kept[..end].chars().chain(closing).collect())
}

/// What is between a bracket and the one that closes it. The first is the statement itself.
struct Level {
    start: usize,
    closing: char,
    /// Nothing but values so far.
    plain: bool,
    /// The last comma.
    comma: Option<usize>,
    /// After `VALUES`, while nothing else follows.
    rows: Option<Rows>,
}

#[derive(Default)]
struct Rows {
    complete: usize,
    /// Of the last complete one.
    end: usize,
}

impl Level {
    fn new(start: usize, closing: char) -> Self {
        Self {
            start,
            closing,
            plain: true,
            comma: None,
            rows: None,
        }
    }
}

/// The brackets that are open at the end. Strings and comments are not part of recorded texts.
fn open_levels(text: &str) -> Option<Vec<Level>> {
    let mut levels = vec![Level::new(0, ' ')];
    // The name of a type was read, which may go on: `timestamp with time zone`.
    let mut after_type = false;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let start = at;
        at += c.len_utf8();
        let level = levels.last_mut()?;
        match c {
            '(' => levels.push(Level::new(at, ')')),
            '[' => levels.push(Level::new(at, ']')),
            ')' | ']' => {
                (level.closing == c).then_some(())?;
                levels.pop();
                if let Some(rows) = &mut levels.last_mut()?.rows {
                    rows.complete += 1;
                    rows.end = at;
                }
            }
            ',' => level.comma = Some(start),
            '$' => at = end_of(text, at, |c| c.is_ascii_digit()),
            _ if c == '"' || c.is_alphabetic() || c == '_' => {
                at = match c {
                    '"' => end_of(text, at, |c| c != '"') + 1,
                    _ => end_of(text, at, |c| c.is_alphanumeric() || c == '_' || c == '$'),
                };
                if at >= text.len() {
                    // Half a word may be any, but between rows of values there are none.
                    level.rows = None;
                    break;
                }
                let word = text[start..at].to_ascii_lowercase();
                let goes_on = matches!(
                    word.as_str(),
                    "with" | "without" | "time" | "zone" | "precision" | "varying"
                );
                after_type = is_type(text, start) || after_type && goes_on;
                match word.as_str() {
                    _ if after_type => continue,
                    "values" => level.rows = Some(Rows::default()),
                    "null" | "default" | "true" | "false" => {}
                    _ => (level.plain, level.rows) = (false, None),
                }
            }
            ' ' | '.' => continue,
            _ => {}
        }
        after_type = false;
    }
    Some(levels)
}

/// Where what consists of these characters ends.
fn end_of(text: &str, start: usize, part: impl Fn(char) -> bool) -> usize {
    let rest = &text[start..];
    start + rest.find(|c| !part(c)).unwrap_or(rest.len())
}

/// Whether what begins here is the name of a type to cast to: `::int`, `::"Mood"`, `::public.mood`.
fn is_type(text: &str, start: usize) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || "_$.\"".contains(c);
    text[..start].trim_end_matches(part_of_name).ends_with("::")
}
