//! Texts of which only the beginning was kept.
//!
//! What makes statements long is nearly always a list of values: rows to insert, ids to look for. Where a text was cut in the middle of such a list, it is taken
//! to have gone on like that.

/// Parameters in a row that make a list that one can expect to go on.
const LIST_MIN: usize = 50;

/// The same statement with a shorter list, if it was cut in the middle of a long one.
pub(super) fn mended(text: &str) -> Option<String> {
    let kept = text.strip_suffix('…')?;
    let list = kept.trim_end_matches(|c: char| c.is_ascii_digit() || "$,() \n\t".contains(c));
    let values = &kept[list.len()..];
    if values.matches('$').count() < LIST_MIN {
        return None;
    }
    // The last parameter may have lost digits, which does not matter; all of them does.
    let whole = kept.trim_end_matches(|c: char| "$,( \n\t".contains(c));
    let mut mended = whole.to_owned();
    let (mut open, mut quoted) = (0usize, false);
    for c in whole.chars() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => open += 1,
            ')' if !quoted => open = open.checked_sub(1)?,
            _ => {}
        }
    }
    mended.extend(std::iter::repeat_n(')', open));
    Some(mended)
}
