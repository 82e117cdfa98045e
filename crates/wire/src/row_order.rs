//! In which order the rows of a statement came, so that the same rows can be put into it again.
//!
//! A statement that leaves the order of its rows open, or that of some of them, shows them as they
//! lie in the table or as a plan finds them. Both are others in a replay, and what a service does
//! with a list can hang on it. So of each row its rank is kept among the rows by their hashes: one
//! byte, or two of a statement with more than 256 rows.
//!
//! ```text
//!   rows     c  a  b        hashes  70 10 40        ranks  2 0 1
//!   again    a  b  c   ─▶ by hash  a b c   ─▶ by rank   c  a  b
//! ```

/// Of statements with more rows none is kept.
pub const ROWS_MAX: usize = 4096;

/// As long as what is kept of a transaction is shorter than this.
const BYTES_MAX: usize = 64 << 10;

const HEAD: usize = 4 + 2 + 4;

/// Keeps the order of a transaction's rows as they come.
#[derive(Clone, Debug, Default)]
pub struct OrderKeeper {
    statement: u32,
    hashes: Vec<u64>,
    kept: Vec<u8>,
}

impl OrderKeeper {
    /// A row of the statement with this index.
    pub fn row(&mut self, statement: u32, hash: u64) {
        if statement != self.statement {
            self.end_statement();
            self.statement = statement;
        }
        if self.hashes.len() <= ROWS_MAX {
            self.hashes.push(hash);
        }
    }

    /// What [`RowOrder::all`] reads.
    pub fn finish(mut self) -> Vec<u8> {
        self.end_statement();
        self.kept
    }

    fn end_statement(&mut self) {
        let count = self.hashes.len();
        if (2..=ROWS_MAX).contains(&count) && self.kept.len() < BYTES_MAX {
            self.kept.extend(self.statement.to_le_bytes());
            self.kept.extend((count as u16).to_le_bytes());
            self.kept.extend(sum(&self.hashes).to_le_bytes());
            let mut ranks = vec![0; count];
            for (rank, at) in (0_u16..).zip(by_hash(&self.hashes)) {
                ranks[at] = rank;
            }
            match count {
                ..=256 => self.kept.extend(ranks.iter().map(|&rank| rank as u8)),
                _ => self
                    .kept
                    .extend(ranks.iter().flat_map(|rank| rank.to_le_bytes())),
            }
        }
        self.hashes.clear();
    }
}

/// The order of a statement's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowOrder {
    /// The statement's index within its transaction.
    pub statement: u32,
    sum: u32,
    ranks: Vec<u16>,
}

impl RowOrder {
    /// Those that an [`OrderKeeper`] has kept. What cannot be read ends them.
    pub fn all(mut kept: &[u8]) -> Vec<Self> {
        let mut all = Vec::new();
        while let Some((one, rest)) = Self::split_off(kept) {
            all.push(one);
            kept = rest;
        }
        all
    }

    fn split_off(kept: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = kept.split_first_chunk::<HEAD>()?;
        let [s0, s1, s2, s3, c0, c1, h0, h1, h2, h3] = *head;
        let count = usize::from(u16::from_le_bytes([c0, c1]));
        let width = if count <= 256 { 1 } else { 2 };
        let (ranks, rest) = rest.split_at_checked(count * width)?;
        let rank = |bytes: &[u8]| match *bytes {
            [low, high] => u16::from_le_bytes([low, high]),
            _ => u16::from(bytes[0]),
        };
        let one = Self {
            statement: u32::from_le_bytes([s0, s1, s2, s3]),
            sum: u32::from_le_bytes([h0, h1, h2, h3]),
            ranks: ranks.chunks(width).map(rank).collect(),
        };
        Some((one, rest))
    }

    /// How many rows there were.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// In which order rows with these hashes are to come, by their places; `None`: they are others.
    pub fn of(&self, hashes: &[u64]) -> Option<Vec<usize>> {
        if hashes.len() != self.ranks.len() || sum(hashes) != self.sum {
            return None;
        }
        let sorted = by_hash(hashes);
        let places = self.ranks.iter().map(|&rank| sorted.get(usize::from(rank)));
        places.map(|place| place.copied()).collect()
    }
}

/// The places of rows, sorted by their hashes.
fn by_hash(hashes: &[u64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..hashes.len()).collect();
    places.sort_by_key(|&at| hashes[at]);
    places
}

fn sum(hashes: &[u64]) -> u32 {
    hashes
        .iter()
        .fold(0_u64, |sum, &hash| sum.wrapping_add(hash)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(statements: &[(u32, &[u64])]) -> Vec<RowOrder> {
        let mut keeper = OrderKeeper::default();
        for &(statement, rows) in statements {
            rows.iter().for_each(|&hash| keeper.row(statement, hash));
        }
        RowOrder::all(&keeper.finish())
    }

    #[test]
    fn the_same_rows_are_put_into_the_order_in_which_they_came() {
        let all = kept(&[(0, &[5]), (1, &[70, 10, 40, 10]), (4, &[3, 2])]);
        let statements: Vec<u32> = all.iter().map(|one| one.statement).collect();
        assert_eq!(statements, [1, 4]);
        let again = [10, 40, 10, 70];
        let order = all[0].of(&again).unwrap();
        let rows: Vec<u64> = order.iter().map(|&at| again[at]).collect();
        assert_eq!(rows, [70, 10, 40, 10]);
        assert_eq!(all[1].of(&[3, 2]), Some(vec![0, 1]));
    }

    #[test]
    fn other_rows_stay_as_they_are() {
        let order = &kept(&[(0, &[70, 10, 40])])[0];
        assert_eq!(order.of(&[70, 10]), None);
        assert_eq!(order.of(&[70, 10, 41]), None);
        assert_eq!(order.count(), 3);
    }

    #[test]
    fn long_results_are_kept_and_the_longest_are_not() {
        let rows: Vec<u64> = (0..ROWS_MAX as u64).map(|at| at * 7919 % 4099).collect();
        let sorted: Vec<u64> = (0..4099).filter(|row| rows.contains(row)).collect();
        let order = &kept(&[(2, &rows)])[0];
        let again = order.of(&sorted).unwrap();
        assert!(again.iter().map(|&at| sorted[at]).eq(rows.iter().copied()));
        let more: Vec<u64> = (0..=ROWS_MAX as u64).collect();
        assert!(kept(&[(0, &more)]).is_empty());
    }

    #[test]
    fn what_is_damaged_ends_what_is_read() {
        let mut keeper = OrderKeeper::default();
        for (statement, hash) in [(0, 1), (0, 2), (1, 3), (1, 4)] {
            keeper.row(statement, hash);
        }
        let kept = keeper.finish();
        assert_eq!(RowOrder::all(&kept).len(), 2);
        assert_eq!(RowOrder::all(&kept[..kept.len() - 1]).len(), 1);
        let mut wrong = kept.clone();
        wrong[HEAD] = 200;
        assert_eq!(RowOrder::all(&wrong)[0].of(&[1, 2]), None);
    }
}
