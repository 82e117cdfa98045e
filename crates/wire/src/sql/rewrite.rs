//! Changes to statement texts, and the way back for error positions.

use bytes::BufMut;

use super::lexer::Encoding;

/// Changes to one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits(Vec<Edit>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    at: usize,
    removed: usize,
    inserted: Vec<u8>,
}

impl Edits {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces `removed` bytes at `at` of the original text. Edits must not overlap; of two at one
    /// place the first comes first.
    pub fn replace(&mut self, at: usize, removed: usize, inserted: &[u8]) {
        let index = self.0.partition_point(|edit| edit.at <= at);
        let fits = index == 0 || self.0[index - 1].at + self.0[index - 1].removed <= at;
        let clear = self.0.get(index).is_none_or(|next| at + removed <= next.at);
        assert!(fits && clear, "edits do not overlap");
        self.0.insert(
            index,
            Edit {
                at,
                removed,
                inserted: inserted.to_vec(),
            },
        );
    }

    pub fn insert(&mut self, at: usize, inserted: &[u8]) {
        self.replace(at, 0, inserted);
    }

    /// Appends the changed text.
    pub fn apply(&self, text: &[u8], out: &mut impl BufMut) {
        let mut copied = 0;
        for edit in &self.0 {
            out.put_slice(&text[copied..edit.at]);
            out.put_slice(&edit.inserted);
            copied = edit.at + edit.removed;
        }
        out.put_slice(&text[copied..]);
    }

    /// How to get from positions in the changed text back to the original.
    pub fn positions(&self, text: &[u8], encoding: Encoding) -> PositionMap {
        let (mut shifts, mut counted, mut original, mut changed) =
            (Vec::with_capacity(self.0.len()), 0, 0, 0);
        for edit in &self.0 {
            let between = encoding.characters(&text[counted..edit.at]) as u32;
            let removed = encoding.characters(&text[edit.at..edit.at + edit.removed]) as u32;
            let inserted = encoding.characters(&edit.inserted) as u32;
            shifts.push(Shift {
                changed: changed + between,
                original: original + between,
                removed,
                inserted,
            });
            changed += between + inserted;
            original += between + removed;
            counted = edit.at + edit.removed;
        }
        let characters = original + encoding.characters(&text[counted..]) as u32;
        PositionMap {
            shifts: shifts.into(),
            characters,
        }
    }
}

/// Maps character positions of a changed text back to the original.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PositionMap {
    shifts: Box<[Shift]>,
    /// Of the original text.
    characters: u32,
}

/// One edit, in characters from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shift {
    changed: u32,
    original: u32,
    removed: u32,
    inserted: u32,
}

impl PositionMap {
    /// Positions count from 1, as in the server's errors. A position within inserted text becomes
    /// the position of the edit.
    pub fn to_original(&self, position: u32) -> u32 {
        let at = position.saturating_sub(1);
        match self.shifts.iter().rev().find(|shift| shift.changed <= at) {
            None => position,
            Some(shift) if at < shift.changed + shift.inserted => shift.original + 1,
            Some(shift) => at - shift.changed - shift.inserted + shift.original + shift.removed + 1,
        }
    }

    /// Whether a position is in text that was inserted at the very end.
    pub fn is_behind(&self, position: u32) -> bool {
        self.shifts.last().is_some_and(|shift| {
            shift.original + shift.removed >= self.characters
                && shift.inserted > 0
                && position > shift.changed
        })
    }

    /// One behind the last character of the original text: where the server reports an unexpected
    /// end.
    pub fn end(&self) -> u32 {
        self.characters + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(edits: &Edits, text: &str) -> String {
        let mut out = Vec::new();
        edits.apply(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn positions_behind_a_change_are_mapped_back() {
        let text = "/*ä*/ SELECT x; COMMIT";
        let mut edits = Edits::new();
        edits.replace(0, "/*ä*/ ".len(), b"");
        edits.insert(text.len() - 6, b"SELECT 7;");
        edits.insert(text.len(), b"\n;SELECT 8");
        let changed = apply(&edits, text);
        assert_eq!(changed, "SELECT x; SELECT 7;COMMIT\n;SELECT 8");
        let map = edits.positions(text.as_bytes(), Encoding::Utf8);
        let original: Vec<char> = text.chars().collect();
        for (wanted, position) in [('x', 8), ('M', 22)] {
            assert_eq!(changed.chars().nth(position - 1), Some(wanted));
            assert_eq!(
                original[map.to_original(position as u32) as usize - 1],
                wanted
            );
        }
        assert!(map.is_behind(changed.find(";SELECT 8").unwrap() as u32 + 1));
        assert!(!map.is_behind(25));
        assert_eq!(map.end(), original.len() as u32 + 1);
    }

    proptest! {
        #[test]
        fn what_stays_is_found_again(text in "[a-zä]{1,30}", cuts in proptest::collection::vec((0usize..30, 0usize..4, "[0-9€]{0,3}"), 0..4)) {
            let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut cuts = cuts;
            cuts.sort();
            let (mut edits, mut free) = (Edits::new(), 0);
            for (at, count, inserted) in &cuts {
                let at = (*at).max(free);
                if at >= boundaries.len() { break; }
                let end = (at + count).min(boundaries.len() - 1);
                edits.replace(boundaries[at], boundaries[end] - boundaries[at], inserted.as_bytes());
                free = end + 1;
            }
            let changed: Vec<char> = apply(&edits, &text).chars().collect();
            let original: Vec<char> = text.chars().collect();
            let map = edits.positions(text.as_bytes(), Encoding::Utf8);
            for (index, character) in changed.iter().enumerate() {
                if character.is_alphabetic() {
                    let back = map.to_original(index as u32 + 1) as usize;
                    prop_assert_eq!(original[back - 1], *character);
                }
            }
        }
    }
}
