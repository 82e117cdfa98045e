//! Analysed texts, remembered.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::lexer::{Dialect, Encoding};
use super::script::Script;
use crate::limits;

const SHARDS: usize = 16;
/// A place in the map, of which some are free, and the counters of an `Arc`.
const ENTRY_BYTES: usize = 2 * size_of::<(u128, Arc<Script>)>() + 2 * size_of::<usize>();

/// Remembers the scripts of texts seen before, so that a repeated text is not read twice. Shared by
/// all sessions of a host.
///
/// Bounded: each shard has two generations. What is used moves to the young one; when that is full,
/// the old one is forgotten and the young one grows old.
#[derive(Debug)]
pub struct ScriptCache {
    shards: [Mutex<Shard>; SHARDS],
    /// Of what one generation of one shard takes.
    generation_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    /// By 128 bits of hash: two texts never share one, for all that matters here.
    scripts: HashMap<u128, Arc<Script>, BuildHasherDefault<LowBits>>,
    bytes: usize,
}

/// The keys are hashes already.
#[derive(Default)]
struct LowBits(u64);

impl Hasher for LowBits {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are written as u128")
    }
    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

impl Default for ScriptCache {
    fn default() -> Self {
        Self::new(limits::SCRIPT_CACHE_BYTES)
    }
}

impl ScriptCache {
    /// Keeps scripts that take at most about this many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            shards: Default::default(),
            generation_bytes_max: bytes_max / SHARDS / 2,
        }
    }

    /// What [`Script::of`] makes of this text.
    pub fn get(&self, text: &[u8], dialect: Dialect) -> Arc<Script> {
        if text.len() > limits::CACHED_TEXT_BYTES_MAX {
            return Arc::new(Script::of(text, dialect));
        }
        let key = xxh3_128_with_seed(text, seed(dialect));
        let shard = &self.shards[(key >> 64) as usize % SHARDS];
        let lock = || shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(script) = lock().find(key, self.generation_bytes_max) {
            return script;
        }
        let script = Arc::new(Script::of(text, dialect));
        lock().insert(key, Arc::clone(&script), self.generation_bytes_max);
        script
    }

    /// How many scripts are kept at present.
    pub fn len(&self) -> usize {
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.scripts.len() + shard.old.scripts.len()
        };
        self.shards.iter().map(count).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shard {
    fn find(&mut self, key: u128, bytes_max: usize) -> Option<Arc<Script>> {
        if let Some(script) = self.young.scripts.get(&key) {
            return Some(Arc::clone(script));
        }
        let script = self.old.scripts.remove(&key)?;
        self.insert(key, Arc::clone(&script), bytes_max);
        Some(script)
    }

    fn insert(&mut self, key: u128, script: Arc<Script>, bytes_max: usize) {
        let bytes = ENTRY_BYTES + script.bytes();
        if self.young.bytes + bytes > bytes_max {
            self.old = std::mem::take(&mut self.young);
        }
        if self.young.scripts.insert(key, script).is_none() {
            self.young.bytes += bytes;
        }
    }
}

fn seed(dialect: Dialect) -> u64 {
    let encoding = match dialect.encoding {
        Encoding::Trailing => 2,
        Encoding::Utf8 | Encoding::SingleByte | Encoding::Euc => 0,
    };
    encoding | u64::from(dialect.standard_strings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_text_is_read_once() {
        let cache = ScriptCache::default();
        let first = cache.get(b"SELECT 1", Dialect::default());
        assert!(Arc::ptr_eq(
            &first,
            &cache.get(b"SELECT 1", Dialect::default())
        ));
        let other = cache.get(
            b"SELECT 1",
            Dialect {
                standard_strings: false,
                ..Dialect::default()
            },
        );
        assert!(!Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let cache = ScriptCache::new(256 << 10);
        let hot = cache.get(b"SELECT hot", Dialect::default());
        for round in 0..20_000 {
            cache.get(format!("SELECT {round}").as_bytes(), Dialect::default());
            assert!(Arc::ptr_eq(
                &hot,
                &cache.get(b"SELECT hot", Dialect::default())
            ));
        }
        assert!(cache.len() <= 1024, "{}", cache.len());
    }

    #[test]
    fn what_counts_is_what_a_script_takes_and_not_its_text() {
        // As pgbench sends them: short, and no two alike.
        let text = |round: u32| {
            format!(
                "UPDATE pgbench_accounts SET abalance = abalance + {round} WHERE aid = {round};"
            )
        };
        let one = Script::of(text(1).as_bytes(), Dialect::default()).bytes();
        assert!(one > 4 * text(1).len(), "{one}");
        let cache = ScriptCache::new(1 << 20);
        for round in 0..20_000 {
            cache.get(text(round).as_bytes(), Dialect::default());
        }
        assert!(cache.len() * one <= 1 << 20, "{}", cache.len());
    }
}
