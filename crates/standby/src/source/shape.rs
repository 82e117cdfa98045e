//! What a change of a table leaves behind in the catalog.
//!
//! The log has no DDL. That rows became others by a change of their table, as by the `USING` of a
//! new type, shows nowhere but here.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Which table it is, where its rows are, and by which transaction each column's entry in the
/// catalog was written last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The same under another name.
    pub oid: u32,
    /// Another one whenever the table is rewritten, emptied, or packed.
    pub filenode: u32,
    /// By their numbers, which a column keeps under another name.
    columns: BTreeMap<i16, u32>,
}

impl Shape {
    /// Whether rows that were there may be others now than the log has made them.
    pub fn may_differ(&self, now: &Self) -> bool {
        let common = || {
            self.columns
                .iter()
                .map(|(at, by)| (now.columns.get(at), by))
        };
        let is_gone = common().any(|(now, _)| now.is_none());
        let is_changed = common().any(|(now, by)| now.is_some_and(|now| now != by));
        let is_new = now.columns.keys().any(|at| !self.columns.contains_key(at));
        let is_rewritten = self.filenode != now.filenode;
        // A column that was dropped may have one of its name in its place.
        self.oid != now.oid || is_rewritten && (is_changed || is_new) || is_gone && is_new
    }

    /// The same after changes that made no rows others. What is gone is remembered: something may
    /// yet come in its place.
    pub fn followed_by(&self, now: &Self) -> Self {
        let mut columns = self.columns.clone();
        columns.extend(&now.columns);
        Self {
            columns,
            ..now.clone()
        }
    }
}

/// `16400/16423/1:734,2:740`
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.oid, self.filenode)?;
        for (n, (at, by)) in self.columns.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            write!(f, "{comma}{at}:{by}")?;
        }
        Ok(())
    }
}

/// It is none that was written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no shape of a table")]
pub struct NoShape;

impl FromStr for Shape {
    type Err = NoShape;

    fn from_str(text: &str) -> Result<Self, NoShape> {
        let (oid, rest) = text.split_once('/').ok_or(NoShape)?;
        let (filenode, columns) = rest.split_once('/').ok_or(NoShape)?;
        let number = |text: &str| text.parse().map_err(|_| NoShape);
        let column = |text: &str| {
            let (at, by) = text.split_once(':')?;
            Some((at.parse().ok()?, by.parse().ok()?))
        };
        let columns = columns.split(',').filter(|column| !column.is_empty());
        Ok(Self {
            oid: number(oid)?,
            filenode: number(filenode)?,
            columns: columns.map(column).collect::<Option<_>>().ok_or(NoShape)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Shape {
        let shape: Shape = text.parse().unwrap();
        assert_eq!(shape.to_string(), text);
        shape
    }

    #[test]
    fn what_no_row_was_changed_by_is_told_from_the_rest() {
        let before = shape("9/10/1:5,2:5");
        let may_differ = |now: &str| before.may_differ(&shape(now));
        // Nothing; packed; a new default; a new column; one that was dropped.
        for now in [
            "9/10/1:5,2:5",
            "9/11/1:5,2:5",
            "9/10/1:5,2:9",
            "9/10/1:5,2:5,3:9",
            "9/10/1:5",
            "9/11/1:5",
        ] {
            assert!(!may_differ(now), "{now}");
        }
        // Another table; another type; a new column with a default that had to be computed; one in
        // the place of another.
        for now in [
            "8/10/1:5,2:5",
            "9/11/1:5,2:9",
            "9/11/1:5,2:5,3:9",
            "9/10/1:5,3:9",
        ] {
            assert!(may_differ(now), "{now}");
        }
        // In steps.
        let dropped = before.followed_by(&shape("9/10/1:5"));
        assert!(dropped.may_differ(&shape("9/10/1:5,3:9")));
        let packed = before.followed_by(&shape("9/11/1:5,2:5"));
        assert!(!packed.may_differ(&shape("9/11/1:5,2:9")));
        assert_eq!(shape("9/3/").to_string(), "9/3/");
        assert!("9/3".parse::<Shape>().is_err() && "9/3/1".parse::<Shape>().is_err());
    }
}
