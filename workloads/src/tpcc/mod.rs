//! NewOrder and Payment of TPC-C (revision 5.11, clauses 2.4 and 2.5), half of the requests each
//! (R³, section 7.2).
//!
//! | request | transaction | statements |
//! |---|---|---|
//! | `POST /tpcc/new-order` | one | 6 and two for each of 5 to 15 lines: 26 on average |
//! | `POST /tpcc/payment` | one | 7, or 8 where the customer is named by last name |
//!
//! Everything that the specification draws at random is in the request. One order in a hundred
//! names an item that nobody sells and is rolled back after its first statements, as specified; its
//! answer is 422. Stock is updated and order lines are inserted in one statement each, as drivers
//! that batch do it and as the paper's count of 25 statements implies.
//!
//! There are no foreign keys: the specification asks for none to be enforced, and the usual kits
//! declare none.

mod handlers;
pub(crate) mod load;
mod requests;
pub(crate) mod schema;

pub(crate) use handlers::handle;
pub use handlers::{Line, NewOrder, Ordered, Paid, Payment};
pub use requests::Requests;

use crate::random::Random;

/// Clause 2.1.6: not uniform, the same hot spots in every run for the same `c`.
fn nurand(random: &mut Random, a: i64, c: i64, low: i64, high: i64) -> i64 {
    ((random.between(0, a) | random.between(low, high)) + c) % (high - low + 1) + low
}

/// Clause 4.3.2.3: three syllables for the digits of a number below 1000.
fn last_name(number: i64) -> String {
    const SYLLABLES: [&str; 10] = [
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
    ];
    [number / 100, number / 10 % 10, number % 10]
        .map(|digit| SYLLABLES[digit as usize])
        .concat()
}

/// The constants of clause 2.1.6.1: that of last names differs between loading and running by a
/// permitted delta.
const C_LAST_LOADING: i64 = 100;
const C_LAST_RUNNING: i64 = 170;
const C_CUSTOMER: i64 = 259;
const C_ITEM: i64 = 7_911;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_those_of_the_specification() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
    }

    #[test]
    fn skewed_numbers_stay_in_their_range() {
        let mut random = Random::new(1);
        let drawn: Vec<i64> = (0..10_000)
            .map(|_| nurand(&mut random, 1023, C_CUSTOMER, 1, 3000))
            .collect();
        assert!(drawn.iter().all(|number| (1..=3000).contains(number)));
        assert!(
            drawn.iter().any(|number| *number < 300) && drawn.iter().any(|number| *number > 2700)
        );
    }

    #[test]
    fn the_two_constants_of_last_names_differ_as_permitted() {
        let delta = C_LAST_RUNNING - C_LAST_LOADING;
        assert!((65..=119).contains(&delta) && delta != 96 && delta != 112);
    }
}
