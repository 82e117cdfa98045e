//! Which rows of a table are wanted.

use std::fmt;
use std::str::FromStr;

/// `orders: region = 'eu'`: of tables that fit a pattern, the rows that meet a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFilter {
    /// Like [`TableFilter`](super::TableFilter)'s.
    pub pattern: String,
    /// As `CREATE PUBLICATION … WHERE` takes it.
    pub condition: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a table and a condition, as in \"orders: region = 'eu'\"")]
pub struct NoRowFilter;

impl FromStr for RowFilter {
    type Err = NoRowFilter;

    fn from_str(text: &str) -> Result<Self, NoRowFilter> {
        let (pattern, condition) = text.split_once(':').ok_or(NoRowFilter)?;
        let (pattern, condition) = (pattern.trim(), condition.trim());
        // `orders::text` is no table's pattern.
        if pattern.is_empty() || condition.is_empty() || condition.starts_with(':') {
            return Err(NoRowFilter);
        }
        Ok(Self {
            pattern: pattern.to_owned(),
            condition: condition.to_owned(),
        })
    }
}

impl fmt::Display for RowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pattern, self.condition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_and_a_condition_are_told_apart() {
        let filter: RowFilter = "sales.orders: at > '2026-01-01'::date".parse().unwrap();
        assert_eq!(filter.pattern, "sales.orders");
        assert_eq!(filter.condition, "at > '2026-01-01'::date");
        assert_eq!(filter.to_string().parse(), Ok(filter));
        for no in ["orders", "orders:", ": a = 1", "a::int = 1"] {
            assert_eq!(no.parse::<RowFilter>(), Err(NoRowFilter), "{no}");
        }
    }
}
