//! Positions in the WAL.

/// A position in the WAL; `Display` and `FromStr` use Postgres' `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl std::str::FromStr for Lsn {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (high, low) = text.split_once('/').unwrap_or(("", text));
        Ok(Self(
            u64::from(u32::from_str_radix(high, 16)?) << 32
                | u64::from(u32::from_str_radix(low, 16)?),
        ))
    }
}
