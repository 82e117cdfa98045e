//! Clients of the primary that do what [`super::checker`] can judge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::session::{Failure, Session};
use crate::standby::Random;
use crate::standby::checker::{ACCOUNTS, ALBUMS, ITEMS, POSTS};

/// Clients at work. Dropping it ends them.
pub struct Workload {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    url: String,
    is_over: AtomicBool,
    transactions: AtomicU64,
    /// Transactions per second of all clients together; 0: as fast as they can.
    rate: u64,
    clients: u64,
}

impl Workload {
    /// Starts clients that need [`super::checker::schema`], each with numbers of its own from
    /// `random`.
    pub fn start(url: &str, clients: u64, rate: u64, random: &mut Random) -> Self {
        let shared = Arc::new(Shared {
            url: url.to_owned(),
            is_over: AtomicBool::new(false),
            transactions: AtomicU64::new(0),
            rate,
            clients,
        });
        let start = |number: u64| {
            let shared = Arc::clone(&shared);
            let random = Random::new(random.any());
            thread::Builder::new()
                .name(format!("client {number}"))
                .spawn(move || shared.client(number, random))
                .expect("a thread can be started")
        };
        Self {
            clients: (0..clients).map(start).collect(),
            shared,
        }
    }

    /// Transactions that were committed.
    pub fn transactions(&self) -> u64 {
        self.shared.transactions.load(Ordering::Relaxed)
    }

    /// Ends the clients and says how much they did.
    ///
    /// # Panics
    /// If a client met an error that has nothing to do with concurrency.
    pub fn stop(mut self) -> u64 {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            if let Err(panic) = client.join() {
                std::panic::resume_unwind(panic);
            }
        }
        self.transactions()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl Shared {
    fn client(&self, number: u64, mut random: Random) {
        // Names of prepared transactions are the whole server's.
        let database = self.url.rsplit('/').next().unwrap_or_default();
        let prepared = format!("client {number} of {database}");
        let mut session = None;
        let begun = Instant::now();
        let mut done = 0u64;
        while !self.is_over.load(Ordering::Relaxed) {
            let due_us = done
                .saturating_mul(1_000_000 * self.clients)
                .checked_div(self.rate);
            let due = Duration::from_micros(due_us.unwrap_or(0));
            if let Some(early) = due.checked_sub(begun.elapsed()) {
                thread::sleep(early.min(Duration::from_millis(20)));
                continue;
            }
            done += 1;
            let Some(connected) = &session else {
                // The primary may be restarting.
                session = Session::connect(&self.url).ok();
                match &session {
                    // What was prepared when the session broke still holds its locks.
                    Some(session) => drop(session.run(&format!("COMMIT PREPARED '{prepared}'"))),
                    None => thread::sleep(Duration::from_millis(20)),
                }
                continue;
            };
            match transaction(connected, number, &prepared, &mut random) {
                Ok(count) => {
                    self.transactions.fetch_add(count, Ordering::Relaxed);
                }
                Err(failure) if failure.is_connection() => session = None,
                // Serialization, deadlock, lock timeout.
                Err(failure)
                    if matches!(
                        failure.code.as_deref(),
                        Some("40001" | "40P01" | "55P03" | "25P02")
                    ) =>
                {
                    let _ = connected.run("ROLLBACK");
                }
                Err(failure) => panic!("client {number} of the workload: {failure}"),
            }
        }
        // What is prepared and not committed would hold its locks for ever.
        if let Some(session) = session {
            let _ = session.run(&format!("ROLLBACK PREPARED '{prepared}'"));
        }
    }
}

/// One of the things that clients do; the number of transactions it took.
fn transaction(
    session: &Session,
    client: u64,
    prepared: &str,
    random: &mut Random,
) -> Result<u64, Failure> {
    match random.below(12) {
        0..3 => session.run(&format!("BEGIN; {} COMMIT", transfer(random)))?,
        3 => session.run(&format!("BEGIN; {} COMMIT", comment(random)))?,
        4 => session.run(&format!(
            "BEGIN; {} {} COMMIT",
            comment(random),
            uncomment(random)
        ))?,
        5 => session.run(&format!("BEGIN; {} COMMIT", swap(random)))?,
        6 => return upload(session, client, random),
        7 => return another_key(session, random),
        8 => again(session, random)?,
        9 => {
            // What is rolled back to a savepoint never happened; what is released did.
            let (kept, lost, last) = (transfer(random), transfer(random), swap(random));
            session.run(&format!(
                "BEGIN; {kept} SAVEPOINT a; {lost} INSERT INTO item VALUES (-1, 'lost', ''); ROLLBACK TO a; \
                 SAVEPOINT b; {last} RELEASE b; COMMIT"
            ))?;
        }
        10 => {
            session.run(&format!("BEGIN; {} {}", transfer(random), comment(random)))?;
            session.run("ROLLBACK")?;
            return Ok(0);
        }
        _ if client == 0 && random.below(4) == 0 => {
            // Hot: one transaction changes all rows, twice.
            let colour = colour(random);
            session.run(&format!(
                "BEGIN; UPDATE item SET color = '{colour}'; UPDATE item SET color = '{colour}' || id; COMMIT"
            ))?;
        }
        _ if client == 1 => {
            session.run(&format!(
                "BEGIN; {} {} PREPARE TRANSACTION '{prepared}'",
                transfer(random),
                comment(random)
            ))?;
            session.run(&format!("COMMIT PREPARED '{prepared}'"))?;
        }
        _ => {
            let item = 1 + random.below(ITEMS as u64);
            let colour = colour(random);
            session.run(&format!(
                "UPDATE item SET color = '{colour}' WHERE id % {ITEMS} = {item} % {ITEMS}"
            ))?;
        }
    }
    Ok(1)
}

fn colour(random: &mut Random) -> &'static str {
    ["red", "green", "blue", "white", ""][random.below(5) as usize]
}

fn two(end: i64, random: &mut Random) -> (u64, u64) {
    let end = end as u64;
    let one = random.below(end);
    let other = (one + 1 + random.below(end - 1)) % end;
    (one + 1, other + 1)
}

/// Skewed, so that some accounts are hot; always in the order of their ids, against deadlocks.
fn transfer(random: &mut Random) -> String {
    let end = if random.below(2) == 0 { 3 } else { ACCOUNTS };
    let (from, to) = two(end, random);
    let amount = random.below(100) as i64;
    let (least, greatest) = (from.min(to), from.max(to));
    let amount = if from < to { amount } else { -amount };
    format!(
        "UPDATE account SET balance = balance - {amount} WHERE id = {least}; UPDATE account SET balance = balance + {amount} WHERE id = {greatest};"
    )
}

/// The unique place of two accounts, by way of a place that nobody has.
fn swap(random: &mut Random) -> String {
    let (one, other) = two(ACCOUNTS, random);
    let (one, other) = (one.min(other), one.max(other));
    format!(
        "SELECT id FROM account WHERE id IN ({one}, {other}) ORDER BY id FOR UPDATE; \
         UPDATE account SET place = -place WHERE id = {one}; \
         WITH was AS (SELECT a.place one, b.place other FROM account a, account b WHERE a.id = {one} AND b.id = {other}) \
         UPDATE account SET place = -was.one FROM was WHERE id = {other}; \
         UPDATE account SET place = (SELECT sum(p) FROM generate_series(1, {ACCOUNTS}) p) - (SELECT sum(place) FROM account WHERE id <> {one}) WHERE id = {one};"
    )
}

fn comment(random: &mut Random) -> String {
    let post = 1 + random.below(POSTS as u64);
    let count = 1 + random.below(3);
    format!(
        "UPDATE post SET comments = comments + {count} WHERE id = {post}; \
         INSERT INTO comment (post, body) SELECT {post}, 'comment ' || i FROM generate_series(1, {count}) i;"
    )
}

/// Down to a few: the oldest go.
fn uncomment(random: &mut Random) -> String {
    let post = 1 + random.below(POSTS as u64);
    format!(
        "SELECT id FROM post WHERE id = {post} FOR UPDATE; \
         DELETE FROM comment WHERE id IN (SELECT id FROM comment WHERE post = {post} ORDER BY id DESC OFFSET 8); \
         UPDATE post SET comments = (SELECT count(*) FROM comment WHERE post = {post}) WHERE id = {post};"
    )
}

/// The permission is withdrawn, then the picture is uploaded; later the picture goes, then the
/// permission comes back. Four transactions.
fn upload(session: &Session, client: u64, random: &mut Random) -> Result<u64, Failure> {
    let album = 1 + client % ALBUMS as u64;
    let picture = random.below(1_000_000_000);
    session.run(&format!(
        "UPDATE album SET shared = false WHERE id = {album}"
    ))?;
    session.run(&format!(
        "INSERT INTO picture VALUES ({album}, {picture}, true)"
    ))?;
    session.run(&format!("DELETE FROM picture WHERE album = {album}"))?;
    session.run(&format!(
        "UPDATE album SET shared = true WHERE id = {album}"
    ))?;
    Ok(4)
}

/// An item gets another key, its attachment untouched; sometimes it gets the old one back at once,
/// or a colour with it.
fn another_key(session: &Session, random: &mut Random) -> Result<u64, Failure> {
    let item = 1 + random.below(ITEMS as u64);
    let colour = colour(random);
    let of = format!("id % {ITEMS} = {item} % {ITEMS}");
    let more = match random.below(3) {
        0 => format!("UPDATE item SET color = '{colour}' WHERE {of};"),
        1 => format!("UPDATE item SET id = id + {ITEMS} WHERE {of};"),
        _ => String::new(),
    };
    session.run(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock({item}); UPDATE item SET id = id + CASE WHEN id > 1000 THEN -30 * {ITEMS} ELSE {ITEMS} END WHERE {of}; {more} COMMIT"
    ))?;
    Ok(1)
}

/// An item is deleted, and inserted again with the same key.
fn again(session: &Session, random: &mut Random) -> Result<(), Failure> {
    let item = 1 + random.below(ITEMS as u64);
    let attachment = random.below(1000);
    session.run(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock({item}); WITH gone AS (DELETE FROM item WHERE id % {ITEMS} = {item} % {ITEMS} RETURNING id) \
           SELECT set_config('checker.item', max(id)::text, true) FROM gone; \
         INSERT INTO item VALUES (current_setting('checker.item')::int, 'new', repeat(md5('{attachment}'), 100)); COMMIT"
    ))
}
