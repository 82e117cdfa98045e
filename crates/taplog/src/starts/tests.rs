use std::collections::HashSet;

use super::*;

/// Zeroed memory for one, as the board has it.
fn starts() -> Box<Starts> {
    // SAFETY: all of it is numbers, of which zero is one.
    let starts = unsafe { Box::<Starts>::new_zeroed().assume_init() };
    starts.set_key(&[7; KEY]);
    starts
}

fn program(starts: &Starts, pid: u32, parent: u32, command: &str) -> Program {
    let words = command.split(' ').map(str::as_bytes);
    starts.program((pid, parent), words)
}

fn first_of(program: &Program) -> Thread {
    let thread = Thread::new();
    thread.begin_program(program);
    thread
}

fn with(identity: Identity) -> Thread {
    let thread = Thread::new();
    thread.begin(identity);
    thread
}

type Place = ([u8; KEY], u64, u64);

fn place(draw: Draw) -> Place {
    (draw.key, draw.request, draw.block)
}

fn draw(starts: &Starts, thread: &Thread) -> Option<Place> {
    thread.draw(starts, Caller::UNKNOWN).map(place)
}

/// A master with two threads, each of which forks two workers, which make a thread each.
fn tree(starts: &Starts) -> Vec<Place> {
    let master = first_of(&program(starts, 10, 1, "python serve.py"));
    let other = with(master.thread());
    let workers = [master.child(), other.child(), master.child(), other.child()];
    let workers = workers.map(with);
    let threads = [0, 1, 2, 3].map(|at: usize| with(workers[at].thread()));
    let all = [&master, &other]
        .into_iter()
        .chain(&workers)
        .chain(&threads);
    let twice = all.flat_map(|thread| [draw(starts, thread), draw(starts, thread)]);
    twice.map(Option::unwrap).collect()
}

#[test]
fn a_replay_draws_what_was_drawn_and_no_two_threads_draw_the_same() {
    let recorded = tree(&starts());
    assert_eq!(tree(&starts()), recorded);
    let different: HashSet<_> = recorded.iter().collect();
    assert_eq!(different.len(), 2 * 10);
}

#[test]
fn who_has_the_identity_of_somebody_else_draws_from_the_kernel() {
    let starts = starts();
    let master = first_of(&program(&starts, 10, 1, "serve"));
    let child = master.child();
    let (one, same) = (with(child), with(child));
    assert!(draw(&starts, &one).is_some());
    assert_eq!(draw(&starts, &same), None);
    assert!(draw(&starts, &one).is_some(), "it was the first");
    // A copy of a program's thread in a child that nobody saw begin.
    let copy = with(Identity(master.identity.load(Ordering::Relaxed)));
    assert_eq!(draw(&starts, &copy), None);
    assert!(draw(&starts, &master).is_some());
}

#[test]
fn what_is_not_known_and_what_it_makes_draws_from_the_kernel() {
    let starts = starts();
    let unknown = Thread::new();
    assert_eq!(draw(&starts, &unknown), None);
    assert_eq!(draw(&starts, &with(unknown.thread())), None);
    assert_eq!(draw(&starts, &with(unknown.child())), None);
    starts.begins(10, Identity::UNKNOWN);
    let started = program(&starts, 11, 10, "serve");
    assert_eq!(draw(&starts, &first_of(&started)), None);
}

#[test]
fn without_a_key_nothing_is_computed() {
    // SAFETY: as above.
    let starts = unsafe { Box::<Starts>::new_zeroed().assume_init() };
    assert!(!starts.are_pinned());
    let thread = first_of(&program(&starts, 10, 1, "serve"));
    assert_eq!(draw(&starts, &thread), None);
}

/// A service that ends and is started again, by the recorder's child or in its place.
#[test]
fn each_start_of_a_program_is_another_one() {
    let starts = starts();
    let supervisor = program(&starts, 10, 1, "supervise");
    let first = program(&starts, 11, 10, "serve 8000");
    let again = program(&starts, 12, 10, "serve 8000");
    let itself = program(&starts, 12, 10, "serve 8000");
    let other = program(&starts, 13, 10, "migrate");
    let all = [supervisor, first, again, itself, other];
    let different: HashSet<_> = all.iter().map(|one| one.identity.0).collect();
    assert_eq!(different.len(), all.len());
    // Nobody knows of so many.
    let many = |pid| program(&starts, pid, 10, "work").identity;
    let known = (100..100 + 2 * STARTS as u32)
        .map(many)
        .filter(|one| *one != Identity::UNKNOWN);
    assert_eq!(known.count() as u64, STARTS);
}

/// A replay starts the service by a shell, in another folder, and the order of two others differs.
#[test]
fn a_program_is_known_by_its_command_and_by_what_has_started_it() {
    let (recorded, replayed) = (starts(), starts());
    let direct = program(&recorded, 10, 1, "/usr/bin/python3 /srv/app/serve.py 8000");
    program(&replayed, 20, 1, "/bin/sh -c script");
    let behind = program(&replayed, 22, 20, "python3 /srv/new/serve.py 8001");
    assert_eq!(direct, behind);
    let one = |starts: &Starts, pid| program(starts, pid, pid / 10 * 10, "one");
    let two = |starts: &Starts, pid| program(starts, pid, pid / 10 * 10, "two");
    replayed.begins(20, direct.base);
    let (a, b) = (one(&recorded, 11), two(&recorded, 12));
    let (second, first) = (two(&replayed, 23), one(&replayed, 24));
    assert_eq!((a, b), (first, second));
    // What the shell itself draws is its own.
    let shell = program(&recorded, 30, 1, "sh -c serve");
    assert!(shell.is_shell && shell.base == Identity::ROOT);
    assert_ne!(shell.identity, Identity::ROOT);
}

#[test]
fn draws_are_counted_by_the_code_that_asks_and_with_another_key_than_requests() {
    let starts = starts();
    let thread = first_of(&program(&starts, 10, 1, "serve"));
    let of = |code| place(thread.draw(&starts, Caller(code)).unwrap());
    let drawn = [of(1), of(2), of(1), of(0), of(2), of(0)];
    let other = self::starts();
    let again = first_of(&program(&other, 10, 1, "serve"));
    let of = |code| place(again.draw(&other, Caller(code)).unwrap());
    assert_eq!(
        [of(0), of(0), of(1), of(1), of(2), of(2)],
        [drawn[3], drawn[5], drawn[0], drawn[2], drawn[1], drawn[4]]
    );
    // That of a request differs from the recording's in its first bytes alone.
    assert!(drawn.iter().all(|(key, ..)| key[2..] != [7; KEY - 2]));
    // More codes than are counted apart.
    let many: HashSet<_> = (1..200).map(of).collect();
    assert_eq!(many.len(), 199);
}

#[test]
fn there_is_an_end_of_claims() {
    let starts = starts();
    let claimed = (2..2 * CLAIMS as u64).filter(|&one| starts.claim(Identity(mixed(0, one))));
    let claimed = claimed.count();
    assert!(claimed > CLAIMS / 2 && claimed <= CLAIMS, "{claimed}");
    assert!(!starts.claim(Identity(mixed(0, 2))), "it is somebody's");
}
