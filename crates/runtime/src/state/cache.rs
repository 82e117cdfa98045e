//! R2's `cache` (section 6): statuses that rarely change are counted, not logged.
//!
//! ```text
//!   calls   close→0  close→0  close→0  close→EBADF
//!   log     close→0                    Cached{2} close→EBADF
//! ```
//!
//! The count stands before the next logged call of the same function, so replay looks ahead for it.
//! Where none follows, the status did not change for the rest of the log.

use hindcast_execlog::event::{FUNCTIONS, Kind};

use crate::functions::Function;
use crate::state::log::Reader;

/// Functions with numbers below this can be cached; the tables of a thread are that long.
const FUNCTIONS_MAX: usize = 640;

#[derive(Clone, Copy)]
struct Entry {
    known: bool,
    failed: bool,
    result: i64,
    /// Recording: repetitions since the last logged call. Replay: repetitions left.
    hits: u32,
}

/// The last status of each function, for one thread.
pub struct Cache {
    entries: [Entry; FUNCTIONS_MAX],
}

/// What a status that was just recorded is.
pub enum Repeated {
    /// The last one again: nothing to log.
    Again,
    /// Another one, after so many repetitions of the last.
    Changed { hits: u32 },
}

impl Cache {
    pub const fn new() -> Self {
        Cache {
            entries: [Entry {
                known: false,
                failed: false,
                result: 0,
                hits: 0,
            }; FUNCTIONS_MAX],
        }
    }

    fn entry(&mut self, function: Function) -> Option<&mut Entry> {
        self.entries.get_mut((function.0 - FUNCTIONS) as usize)
    }

    pub fn recorded(&mut self, function: Function, result: Result<i64, i32>) -> Repeated {
        let Some(entry) = self.entry(function) else {
            return Repeated::Changed { hits: 0 };
        };
        let (failed, value) = plain(result);
        if entry.known
            && entry.failed == failed
            && entry.result == value
            && entry.hits < u32::MAX - 1
        {
            entry.hits += 1;
            return Repeated::Again;
        }
        let hits = entry.hits;
        *entry = Entry {
            known: true,
            failed,
            result: value,
            hits: 0,
        };
        Repeated::Changed { hits }
    }

    /// The call did more than give a status: it must be logged, whatever it gives.
    pub fn interrupted(&mut self, function: Function) {
        if let Some(entry) = self.entry(function) {
            entry.known = false;
        }
    }

    /// Whether the next call of the function is one of the repetitions.
    pub fn repeats(&mut self, function: Function) -> bool {
        self.entry(function)
            .is_some_and(|entry| entry.known && entry.hits != 0)
    }

    /// The status once more, while there are repetitions left.
    pub fn replayed(&mut self, function: Function) -> Option<Result<i64, i32>> {
        let entry = self.entry(function)?;
        if !entry.known || entry.hits == 0 {
            return None;
        }
        if entry.hits != u32::MAX {
            entry.hits -= 1;
        }
        Some(if entry.failed {
            Err(entry.result as i32)
        } else {
            Ok(entry.result)
        })
    }

    pub fn remember(&mut self, function: Function, result: Result<i64, i32>, hits: u32) {
        let (failed, value) = plain(result);
        if let Some(entry) = self.entry(function) {
            *entry = Entry {
                known: true,
                failed,
                result: value,
                hits,
            };
        }
    }
}

fn plain(result: Result<i64, i32>) -> (bool, i64) {
    match result {
        Ok(value) => (false, value),
        Err(code) => (true, code.into()),
    }
}

/// How often the status that was just read repeats; `u32::MAX`: to the end of the log.
pub fn hits_ahead(reader: &Reader, function: Function) -> u32 {
    for event in reader.ahead() {
        if event.kind == function.0 {
            return 0;
        }
        if event.kind == Kind::Cached as u16
            && let Some((hits, of)) = event.payload.split_first_chunk::<4>()
            && of == function.0.to_ne_bytes()
        {
            return u32::from_ne_bytes(*hits);
        }
    }
    u32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_counted_and_given_back() {
        let function = Function(FUNCTIONS + 3);
        let mut recording = Cache::new();
        let mut counts = Vec::new();
        for result in [Ok(0), Ok(0), Ok(0), Err(9), Err(9), Ok(0)] {
            counts.push(match recording.recorded(function, result) {
                Repeated::Again => None,
                Repeated::Changed { hits } => Some(hits),
            });
        }
        assert_eq!(counts, [Some(0), None, None, Some(2), None, Some(1)]);

        let mut replay = Cache::new();
        assert_eq!(replay.replayed(function), None);
        replay.remember(function, Ok(0), 2);
        assert_eq!(
            [
                replay.replayed(function),
                replay.replayed(function),
                replay.replayed(function)
            ],
            [Some(Ok(0)), Some(Ok(0)), None]
        );
    }
}
