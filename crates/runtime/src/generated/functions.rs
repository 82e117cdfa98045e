pub const NAMES: &[&str] = &[];
pub const TABLE_HASH: u64 = 0;
