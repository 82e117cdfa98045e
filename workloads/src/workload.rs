//! Which workload, in which variant, how large.

use std::fmt;

use clap::ValueEnum;

/// What a service serves, a loader loads and a driver drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Workload {
    /// Forum subscriptions; holds MDL-59854, two subscriptions of one user to one forum.
    Moodle,
    /// The option table; holds WP-11437, a unique violation where none should be possible.
    WpOptions,
    /// Posts and their comments; holds WP-11073, a comment lost by trashing and restoring its post.
    WpComments,
    /// NewOrder and Payment of TPC-C.
    Tpcc,
    /// Both WordPress workloads in one service, half of the requests each (R³, section 7.4).
    Wordpress,
}

/// The code as it was, or one of its fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, ValueEnum)]
pub enum Variant {
    /// With the bug.
    #[default]
    Original,
    /// Moodle: check and insert in one transaction. Still duplicates under snapshot isolation.
    Merged,
    /// Moodle and WordPress options: `INSERT … ON CONFLICT`. Moodle's needs the unique index that
    /// `load --variant upsert` or `migrate` makes.
    Upsert,
    /// WordPress options: `upsert`, and transactions that fail to serialize are tried again.
    UpsertRetry,
    /// WordPress comments: no comments on a post that is in the trash. Right only under
    /// SERIALIZABLE.
    Checked,
    /// Both WordPress workloads: each as it was fixed, `upsert-retry` and `checked`.
    Fixed,
}

impl Variant {
    /// What it comes to in one part of a combined workload.
    pub(crate) fn of(self, part: Workload) -> Self {
        match (self, part) {
            (Self::Fixed, Workload::WpOptions) => Self::UpsertRetry,
            (Self::Fixed, Workload::WpComments) => Self::Checked,
            _ => self,
        }
    }
}

impl Workload {
    /// The variants that mean something for this workload, the original first.
    pub fn variants(self) -> &'static [Variant] {
        use Variant::*;
        match self {
            Self::Moodle => &[Original, Merged, Upsert],
            Self::WpOptions => &[Original, Upsert, UpsertRetry],
            Self::WpComments => &[Original, Checked],
            Self::Tpcc => &[Original],
            Self::Wordpress => &[Original, Upsert, UpsertRetry, Checked, Fixed],
        }
    }

    /// The workloads this one is made of: itself, unless it is a combination.
    pub fn parts(self) -> &'static [Workload] {
        match self {
            Self::Moodle => &[Self::Moodle],
            Self::WpOptions => &[Self::WpOptions],
            Self::WpComments => &[Self::WpComments],
            Self::Tpcc => &[Self::Tpcc],
            Self::Wordpress => &[Self::WpOptions, Self::WpComments],
        }
    }

    /// Refuses a variant that this workload does not have.
    pub fn check_variant(self, variant: Variant) -> Result<(), NoSuchVariant> {
        if self.variants().contains(&variant) {
            Ok(())
        } else {
            Err(NoSuchVariant {
                workload: self,
                variant,
            })
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{workload} has no variant `{variant}`; it has: {}", names(.workload.variants()))]
pub struct NoSuchVariant {
    pub workload: Workload,
    pub variant: Variant,
}

fn names(variants: &[Variant]) -> String {
    variants
        .iter()
        .map(Variant::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(value_name(self).as_str())
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(value_name(self).as_str())
    }
}

fn value_name(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .expect("no value is hidden")
        .get_name()
        .to_owned()
}

/// How much data, as a multiple of the paper's: 1 is Table 1 and section 7.2.
///
/// Whoever loads and whoever drives must agree on it, since the driver draws ids from these ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

#[derive(Debug, thiserror::Error)]
#[error("a scale is a positive number up to 1000, not `{0}`")]
pub struct BadScale(String);

impl Scale {
    pub const PAPER: Self = Self(1.0);

    pub fn new(factor: f64) -> Result<Self, BadScale> {
        if factor > 0.0 && factor <= 1000.0 {
            Ok(Self(factor))
        } else {
            Err(BadScale(factor.to_string()))
        }
    }

    /// The scale at which there are `rows` where the paper has `full`.
    pub(crate) fn of_rows(rows: i64, full: u64) -> Self {
        Self(rows.max(1) as f64 / full as f64)
    }

    pub fn moodle_forums(self) -> u64 {
        self.of(1_000)
    }
    pub fn moodle_users(self) -> u64 {
        self.of(5_000)
    }
    pub fn wp_options(self) -> u64 {
        self.of(10_000)
    }
    pub fn wp_posts(self) -> u64 {
        self.of(2_000)
    }

    /// Whole warehouses while there is at least one; below that, one with fewer customers and
    /// items.
    pub fn tpcc(self) -> TpccSize {
        let warehouses = self.0 * 24.0;
        let part = if warehouses < 0.99 { warehouses } else { 1.0 };
        TpccSize {
            warehouses: (warehouses.round() as i32).max(1),
            customers_per_district: ((3_000.0 * part) as i32).max(30),
            items: ((100_000.0 * part) as i32).max(100),
        }
    }

    fn of(self, full: u64) -> u64 {
        ((full as f64 * self.0).round() as u64).max(10)
    }
}

impl std::str::FromStr for Scale {
    type Err = BadScale;
    fn from_str(text: &str) -> Result<Self, BadScale> {
        let factor = text.parse().map_err(|_| BadScale(text.to_owned()))?;
        Self::new(factor)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TpccSize {
    pub warehouses: i32,
    pub customers_per_district: i32,
    pub items: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_one_is_the_papers_size() {
        let tpcc = TpccSize {
            warehouses: 24,
            customers_per_district: 3_000,
            items: 100_000,
        };
        assert_eq!(Scale::PAPER.tpcc(), tpcc);
        assert_eq!(
            (
                Scale::PAPER.moodle_forums(),
                Scale::PAPER.wp_options(),
                Scale::PAPER.wp_posts()
            ),
            (1_000, 10_000, 2_000)
        );
    }

    #[test]
    fn less_than_a_warehouse_is_a_small_warehouse() {
        let size = Scale::new(0.001).unwrap().tpcc();
        assert_eq!(
            size,
            TpccSize {
                warehouses: 1,
                customers_per_district: 72,
                items: 2_400
            }
        );
    }

    #[test]
    fn a_variant_of_another_workload_is_refused_by_name() {
        let error = Workload::Moodle
            .check_variant(Variant::Checked)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "moodle has no variant `checked`; it has: original, merged, upsert"
        );
    }

    #[test]
    fn a_scale_of_nothing_is_refused() {
        for text in ["0", "-1", "NaN", "many", "1e9"] {
            assert!(text.parse::<Scale>().is_err(), "{text}");
        }
    }
}
