//! The connections with which a copy would go on: those of all its processes.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use hindcast_exec::apart::{Follower, Standing, Wanted};

use crate::accept::why;

/// They, and how many were accepted at each port. `begun`: since when the copy is to go on.
pub fn of(
    follower: &Follower,
    begun: Instant,
    patience: Duration,
) -> Result<(Vec<Wanted>, HashMap<u16, usize>), String> {
    let (mut connections, mut accepted) = (Vec::new(), HashMap::new());
    while let Some(wanted) = next(follower, begun, patience)? {
        let connection = &wanted.connection;
        match connection.listens() {
            true => *accepted.entry(connection.port).or_default() += connection.turn as usize,
            false => connections.push(wanted),
        }
    }
    Ok((each_once(connections), accepted))
}

fn next(follower: &Follower, begun: Instant, patience: Duration) -> Result<Option<Wanted>, String> {
    loop {
        match follower.next_connection() {
            Ok(connection) => return Ok(connection),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(format!("the follower is gone: {error}")),
        }
        match follower.standing() {
            Standing::Follows => {}
            Standing::Reported(report) => return Err(why(&report)),
            Standing::Ended(ended) => return Err(format!("the follower has ended: {ended:?}")),
            Standing::Leads { .. } => return Ok(None),
        }
        if begun.elapsed() > patience {
            return Err(format!("it has not replayed the log within {patience:?}"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A child has its parent's connections as well. Of those that have one, the process that has moved
/// most through it is the one that uses it.
fn each_once(mut wanted: Vec<Wanted>) -> Vec<Wanted> {
    let socket = |wanted: &Wanted| {
        let found = wanted.file().map(File::from);
        found
            .and_then(|file| file.metadata())
            .map(|found| found.ino())
    };
    wanted.sort_by_key(|wanted| std::cmp::Reverse(wanted.moved()));
    let mut known = HashSet::new();
    wanted.retain(|wanted| socket(wanted).map_or(true, |socket| known.insert(socket)));
    wanted
}
