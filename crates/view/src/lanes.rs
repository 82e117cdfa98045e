//! How requests are laid out in lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hindcast_trace::{Id, Micros};

use crate::index::Index;

/// What is beyond shares the last lane.
pub const LANES_MAX: usize = 4096;

/// What makes a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// The first place that is free when a request arrives. Clients that wait for each answer have
    /// one each; a recording does not tell connections of clients.
    Client,
    Type,
    /// The database connection of its first transaction.
    Session,
}

impl Lanes {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "client" => Some(Self::Client),
            "type" => Some(Self::Type),
            "session" => Some(Self::Session),
            _ => None,
        }
    }

    pub fn count(self, index: &Index) -> usize {
        let count = match self {
            Self::Client => index.slots,
            Self::Type => index.types.len(),
            Self::Session => index.sessions.len() + 1,
        };
        count.clamp(1, LANES_MAX)
    }

    pub fn of(self, index: &Index, request: usize) -> usize {
        let lane = match self {
            Self::Client => usize::from(index.slot[request]),
            Self::Type => usize::from(index.kind[request]),
            Self::Session => {
                let own = index.transactions_of(request);
                // Without any, it is in the lane before those of sessions.
                own.clone()
                    .next()
                    .map_or(0, |first| index.session[first] as usize + 1)
            }
        };
        lane.min(LANES_MAX - 1)
    }

    pub fn name(self, index: &Index, lane: usize) -> String {
        if lane == LANES_MAX - 1 {
            return "all others".to_owned();
        }
        match self {
            Self::Client => format!("client {}", lane + 1),
            Self::Type => index.types.get(lane).cloned().unwrap_or_default(),
            Self::Session => match lane.checked_sub(1) {
                None => "no transaction".to_owned(),
                Some(at) => format!("session {}", Id(index.sessions[at])),
            },
        }
    }
}

/// Gives each interval the lowest place that is free when it begins.
#[derive(Debug, Default)]
pub(crate) struct Places {
    free: BinaryHeap<Reverse<u16>>,
    taken: BinaryHeap<Reverse<(Micros, u16)>>,
    pub used: usize,
}

impl Places {
    /// Beginnings must not decrease.
    pub fn take(&mut self, begins: Micros, ends: Micros) -> u16 {
        while let Some(Reverse((end, place))) = self.taken.peek().copied() {
            if end > begins {
                break;
            }
            self.taken.pop();
            self.free.push(Reverse(place));
        }
        let place = match self.free.pop() {
            Some(Reverse(place)) => place,
            None if self.used < LANES_MAX => {
                self.used += 1;
                (self.used - 1) as u16
            }
            // The last lane takes what finds no other.
            None => return (LANES_MAX - 1) as u16,
        };
        self.taken.push(Reverse((ends, place)));
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_again_once_it_is_free() {
        let mut places = Places::default();
        let given = [(0, 10), (1, 3), (2, 9), (3, 4), (10, 11), (10, 12)];
        let given = given.map(|(begins, ends)| places.take(begins, ends));
        assert_eq!(given, [0, 1, 2, 1, 0, 1]);
        assert_eq!(places.used, 3);
    }

    #[test]
    fn there_is_an_end_to_lanes() {
        let mut places = Places::default();
        let last = (0..5000).map(|_| places.take(0, 100)).max();
        assert_eq!(last, Some((LANES_MAX - 1) as u16));
    }
}
