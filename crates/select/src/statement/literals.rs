//! Texts whose literals were replaced by parameters where the grammar wants literals.
//!
//! `x::varchar($1)`, `CURRENT_TIMESTAMP($1)`, `COPY t FROM STDIN DELIMITER $1`: the parser stops at
//! such a parameter and says at which. So a literal is put back there, and the text is read again.
//! Which one does not matter to what the statement touches, only that it is of a kind that the
//! grammar allows. A parameter that is the second of two strings in a row, which count as one, is
//! left out.

use serde_json::Value;

/// A number, a string, nothing: one of them is right wherever a literal was.
const CANDIDATES: [&str; 3] = ["1", "'1'", ""];

/// More are not put back into one text.
const REPAIRS_MAX: usize = 500;

/// Reads a text by way of `parse`, which is asked again for every literal that has to be put back.
/// Fails as the text itself does.
pub(super) fn restoring(
    text: &str,
    parse: impl Fn(&str) -> Result<Value, String>,
) -> Result<Value, String> {
    let first = match parse(text) {
        Ok(tree) => return Ok(tree),
        Err(reason) => reason,
    };
    let mut text = text.to_owned();
    let mut stopped = parameter(&first);
    for _ in 0..REPAIRS_MAX {
        let Some(at) = stopped.and_then(|number| position(&text, number)) else {
            break;
        };
        // The parser reads from left to right: a candidate is right if it gets past this place, to
        // the end or to another parameter.
        let next = CANDIDATES.iter().find_map(|candidate| {
            let mut repaired = text.clone();
            repaired.replace_range(at.clone(), candidate);
            match parse(&repaired) {
                Ok(tree) => Some(Ok(tree)),
                Err(reason) => {
                    let further = parameter(&reason).filter(|number| Some(*number) != stopped)?;
                    Some(Err((repaired, further)))
                }
            }
        });
        match next {
            Some(Ok(tree)) => return Ok(tree),
            Some(Err((repaired, further))) => (text, stopped) = (repaired, Some(further)),
            None => break,
        }
    }
    Err(first)
}

/// The parameter at which the parser stopped.
fn parameter(reason: &str) -> Option<u32> {
    let token = reason.strip_prefix("syntax error at or near \"$")?;
    token.strip_suffix('"')?.parse().ok()
}

/// Where this parameter is. Those that stand for literals are each there once.
fn position(text: &str, number: u32) -> Option<std::ops::Range<usize>> {
    let parameter = format!("${number}");
    text.match_indices(&parameter).find_map(|(start, found)| {
        let end = start + found.len();
        let within = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let whole = !text[..start].ends_with(within)
            && !text[end..].starts_with(|c: char| c.is_ascii_digit());
        whole.then_some(start..end)
    })
}
