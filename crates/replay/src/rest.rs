//! When a service that accepts connections has started all that it starts.
//!
//! Servers that fork accept connections as soon as the first of their processes does; the others
//! may still load. That one would take all connections, more than it has threads for, and requests
//! that wait for a thread hold up those that have one and wait for them. So a replay begins when
//! the service does nothing any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

/// How long it has to do nothing.
const REST: Duration = Duration::from_millis(200);
/// It is not waited for any longer: some services always do something.
const PATIENCE: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(50);

/// Ticks of the processor that a service does nothing in: what looks at a clock now and then.
const NOTHING: u64 = 1;

/// Of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    group: u32,
    /// What it has used of processors.
    ticks: u64,
}

/// Waits until the processes of this group, and those that they started, do nothing.
pub async fn until_at_rest(group: u32) {
    let began = Instant::now();
    let mut since = began;
    let mut before = used(group);
    while since.elapsed() < REST && began.elapsed() < PATIENCE {
        tokio::time::sleep(TICK).await;
        let now = used(group);
        if !is_rest(&before, &now) {
            (before, since) = (now, Instant::now());
        }
    }
}

/// Whether a thread of the service's computes, or waits for a processor or a disk.
pub fn is_computing(group: u32) -> bool {
    let threads = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task"));
    let all = used(group).into_keys().filter_map(|pid| threads(pid).ok());
    let computes = |thread: PathBuf| {
        let stat = std::fs::read_to_string(thread.join("stat"));
        stat.is_ok_and(|stat| matches!(state(&stat), Some('R' | 'D')))
    };
    let mut threads = all.flat_map(Iterator::flatten);
    threads.any(|thread| computes(thread.path()))
}

/// What a process or a thread does.
fn state(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// Whether the same processes are there, and have done nothing meanwhile.
fn is_rest(before: &BTreeMap<u32, u64>, now: &BTreeMap<u32, u64>) -> bool {
    let total = |used: &BTreeMap<u32, u64>| used.values().sum::<u64>();
    before.keys().eq(now.keys()) && total(now) <= total(before) + NOTHING
}

/// What each of the service's processes has used.
fn used(group: u32) -> BTreeMap<u32, u64> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let pid = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let processes = entries.flatten().filter_map(|entry| {
        let pid = pid(&entry.path())?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((pid, parse(&stat)?))
    });
    of_group(group, &processes.collect())
}

fn of_group(group: u32, all: &BTreeMap<u32, Stat>) -> BTreeMap<u32, u64> {
    let is_ones_own = |mut pid: u32| {
        // Parents end, and numbers are given again: it may go round.
        for _ in 0..all.len() {
            match all.get(&pid) {
                Some(stat) if stat.group == group => return true,
                Some(stat) => pid = stat.parent,
                None => return false,
            }
        }
        false
    };
    let own = all.iter().filter(|(pid, _)| is_ones_own(**pid));
    own.map(|(pid, stat)| (*pid, stat.ticks)).collect()
}

/// `/proc/PID/stat`. The second field is a name in parentheses, which may hold anything.
fn parse(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: number(1)? as u32,
        group: number(2)? as u32,
        ticks: number(11)? + number(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "4711 (a) b (c) S 17 23 23 0 -1 4194304 500 0 0 0 31 11 0 0 20 0 1 0 1 2 3";
        let expected = Stat {
            parent: 17,
            group: 23,
            ticks: 42,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("4711 (a"), None);
        assert_eq!(state(stat), Some('S'));
        assert!(parse(&std::fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }

    #[test]
    fn those_that_left_the_group_count_too() {
        let stat = |parent, group, ticks| Stat {
            parent,
            group,
            ticks,
        };
        let all = BTreeMap::from([
            (1, stat(0, 1, 100)),
            (10, stat(1, 10, 1)),
            (11, stat(10, 10, 2)),
            (12, stat(11, 12, 3)),
            (13, stat(12, 13, 4)),
            (20, stat(1, 20, 5)),
            (30, stat(31, 30, 6)),
            (31, stat(30, 31, 7)),
        ]);
        let own = BTreeMap::from([(10, 1), (11, 2), (12, 3), (13, 4)]);
        assert_eq!(of_group(10, &all), own);
    }

    #[tokio::test]
    async fn who_rests_is_waited_for_briefly() {
        let began = Instant::now();
        until_at_rest(u32::MAX).await;
        assert!(began.elapsed() < PATIENCE);
    }

    #[test]
    fn another_process_and_work_are_no_rest() {
        let before = BTreeMap::from([(10, 5), (11, 7)]);
        assert!(is_rest(&before, &before));
        assert!(is_rest(&before, &BTreeMap::from([(10, 5), (11, 8)])));
        assert!(!is_rest(&before, &BTreeMap::from([(10, 6), (11, 8)])));
        assert!(!is_rest(
            &before,
            &BTreeMap::from([(10, 5), (11, 7), (12, 0)])
        ));
    }
}
