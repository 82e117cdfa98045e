//! Whose turn it is: which request a thread works on.
//!
//! ```text
//!   read of an accepted connection, a request begins ──▶ the thread's turn
//!   write to a connection of our own ──────────────────▶ the thread's turn stands on the board
//! ```
//!
//! A thread that has read a request works on it until it reads another. That holds where a thread
//! serves one request at a time, and is not believed where it is seen not to hold: a thread that
//! has all of a request and reads another before it answers serves several, and has no turn from
//! then on; in a process where one thread reads a request and another answers, a thread's turn ends
//! with the answer.
//!
//! Who knows better says so, of a thread ([`set`]) or of a connection ([`set_of`]): then what that
//! thread has read counts for nothing. A thread that takes work which another one handed over
//! ([`in_hand`], [`takes`], [`begins`]) works for that one's request, until it reads a request
//! itself. What a runtime's own thread works on goes with it from one of ours to another
//! ([`packed`], [`unpack`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_taplog::board::Line;
use hindcast_taplog::pins::{Asks, Caller, Draw, KEY, Place, Statements, Walk};
use hindcast_taplog::{Board, heads};

use crate::descriptors::{self, Entry};
use crate::short::{self, short};
use crate::{ahead, php, process, python};

/// A descriptor that no program has, for those who know better: see `hooks::reserved`. It never
/// reaches the kernel.
pub const RESERVED: i32 = 0x4849_4e44;

/// A request was read by one thread and answered by another.
static MOVES: AtomicBool = AtomicBool::new(false);

/// How many within each other are known that a thread lets go on.
const LET_GO_ON: usize = 32;

struct Mine {
    /// The request that was read last.
    read: Cell<u64>,
    /// The one whose first bytes were. It may have read the rest of one for another thread since.
    begun: Cell<u64>,
    /// Where from.
    descriptor: Cell<i32>,
    /// What was told; `None`: what was read counts.
    told: Cell<Option<u64>>,
    /// The one for which another thread handed over what it works on; 0: for none.
    taken: Cell<Option<u64>>,
    /// What it was that before it let others go on, and how many there are.
    before: [Cell<Option<u64>>; LET_GO_ON],
    let_go_on: Cell<usize>,
    /// It serves several requests at once.
    several: Cell<bool>,
    /// It is a loop of a runtime, which says when it is done with what it has read.
    is_loop: Cell<bool>,
    /// It works apart from the request that it was told: see [`set_apart`].
    is_apart: Cell<bool>,
    /// What it works on apart, or did last.
    apart: Cell<Apart>,
    /// It draws and reads the time for itself, and not for this request: it has stepped aside so
    /// often.
    aside: Cell<(u64, u32)>,
    /// A library reads the clock for itself, known by this number, as long as the thread works on
    /// this request; 0: none does.
    library: Cell<(u64, u8)>,
    /// What code draws and reads, as it was told.
    caller: Cell<Option<Caller>>,
    /// Whether what goes on in the thread asks a database for a session: see [`set_connecting`].
    connects: Cell<Option<bool>>,
    /// It is one of a pool, in the midst of something that the pool was handed, and has nothing
    /// else to do.
    is_work: Cell<bool>,
    /// The request that it has answered itself.
    answered: Cell<u64>,
    /// Sessions that it has asked a database for, outside of requests, and has not got.
    sessions: Cell<u32>,
    /// How often it may still draw for them.
    session_draws: Cell<u32>,
}

impl Mine {
    /// What it has read last has no answer yet.
    fn is_unanswered(&self) -> bool {
        let of = descriptors::entry(self.descriptor.get());
        of.is_some_and(|entry| entry.is_asked() && entry.turn() == self.read.get())
    }

    /// It has nothing to do with what it has read and taken so far.
    fn forget(&self) {
        self.read.set(0);
        self.begun.set(0);
        self.descriptor.set(-1);
        self.taken.set(None);
        self.let_go_on.set(0);
        self.several.set(false);
        self.aside.set((0, 0));
        self.library.set((0, 0));
        self.is_work.set(false);
        self.answered.set(0);
    }
}

/// Work for a request by a thread of its own, while the request goes on and may be answered.
#[derive(Clone, Copy)]
struct Apart {
    draws: u64,
    /// It asks the database for a session, or has asked.
    is_connecting: bool,
    walk: Walk,
}

thread_local! {
    static MINE: Mine = const {
        Mine {
            read: Cell::new(0),
            begun: Cell::new(0),
            descriptor: Cell::new(-1),
            told: Cell::new(None),
            taken: Cell::new(None),
            before: [const { Cell::new(None) }; LET_GO_ON],
            let_go_on: Cell::new(0),
            several: Cell::new(false),
            is_loop: Cell::new(false),
            is_apart: Cell::new(false),
            apart: Cell::new(Apart {
                draws: 0,
                is_connecting: false,
                walk: Walk::new([0; KEY]),
            }),
            aside: Cell::new((0, 0)),
            library: Cell::new((0, 0)),
            caller: Cell::new(None),
            connects: Cell::new(None),
            is_work: Cell::new(false),
            answered: Cell::new(0),
            sessions: Cell::new(0),
            session_draws: Cell::new(0),
        }
    };
}

/// A request that begins.
pub enum Begins {
    /// With this number.
    Here(u64),
    /// It was sent several times, since nobody seemed to take it, and somebody else has taken it
    /// by now.
    Elsewhere,
}

/// Something was read from an accepted connection.
pub fn was_read(descriptor: i32, entry: &Entry, bytes: &[u8]) -> Option<Begins> {
    let begins = was_read_by_any(descriptor, entry, bytes);
    let is_other = matches!(begins, Some(Begins::Elsewhere)) || !entry.is_asked();
    loop_is_at(if is_other { 0 } else { entry.turn() });
    begins
}

fn was_read_by_any(descriptor: i32, entry: &Entry, bytes: &[u8]) -> Option<Begins> {
    // A server may answer before it has read all of a request, and read the rest with the next one.
    let bytes = &bytes[entry.pass_body(bytes.len()).min(bytes.len())..];
    // What comes is of several requests at a time, of which no recorder has any.
    if entry.is_left_alone() || !entry.is_asked() && heads::begins_http2(bytes) {
        entry.leave_alone();
        MINE.with(reads_unknown);
        return None;
    }
    let starts = !entry.is_asked() && heads::begins_request(bytes);
    // Some servers read the first bytes by themselves, to see whether they are of HTTP/2. In a
    // replay the number comes with the rest.
    let begins = starts || entry.is_asked() && entry.turn() == 0;
    let number = match begins {
        true => number(descriptor, entry, bytes),
        false if entry.is_asked() => Some(entry.turn()),
        false => return None,
    };
    let Some(number) = number else {
        if process::board().is_some_and(Board::replays) {
            MINE.with(reads_unknown);
            entry.ask(0);
        }
        return None;
    };
    if begins {
        if is_elsewhere(entry, number) {
            return Some(Begins::Elsewhere);
        }
        entry.ask(number);
        entry.await_body(heads::body_to_come(bytes));
    }
    MINE.with(|mine| {
        let before = mine.descriptor.replace(descriptor);
        let is_own = mine.begun.get() == mine.read.get();
        let unanswered = |entry: &Entry| entry.is_all_of(mine.read.get());
        if before != descriptor && is_own && descriptors::entry(before).is_some_and(unanswered) {
            mine.several.set(!php::serves_one_at_a_time());
        }
        mine.read.set(number);
        mine.taken.set(None);
        if begins {
            mine.begun.set(number);
        }
    });
    begins.then_some(Begins::Here(number))
}

/// A request is read of which it is not known which one it is, or not yet. The one that the thread
/// has read and answered before is over all the same.
fn reads_unknown(mine: &Mine) {
    if !mine.is_unanswered() {
        mine.read.set(0);
        mine.begun.set(0);
        mine.taken.set(None);
    }
}

/// In a replay, whether somebody has taken this request before. What one process of the service
/// asks another has the same number, and is another request.
fn is_elsewhere(entry: &Entry, number: u64) -> bool {
    let Some(board) = process::board().filter(|board| board.replays()) else {
        return false;
    };
    let is_sent = |line: Line| board.whose_turn(line).is_none();
    entry.line().is_some_and(is_sent) && !board.take(number)
}

/// A request that another process of the service has made has the number of the one that process
/// works on.
fn number(descriptor: i32, entry: &Entry, bytes: &[u8]) -> Option<u64> {
    let board = process::board()?;
    let made = entry.line().and_then(|line| board.whose_turn(line));
    let made = made.filter(|&request| request != 0);
    match board.replays() {
        true => {
            let sent = || entry.line().and_then(|line| board.sent(line));
            let said = heads::said(bytes).or_else(|| ahead::said(descriptor, entry, bytes));
            said.or(made).or_else(sent)
        }
        false => made.or_else(|| Some(board.take_number())),
    }
}

/// Something is written to an accepted connection.
pub fn writes(entry: &Entry, bytes: &[u8]) {
    if !entry.is_asked() || bytes.starts_with(b"HTTP/1.1 1") {
        return;
    }
    let is_own = MINE.with(|mine| {
        let is_own = mine.read.get() == entry.turn();
        if is_own {
            mine.answered.set(entry.turn());
        }
        is_own
    });
    if entry.turn() != 0 && !is_own && !php::serves_one_at_a_time() {
        MOVES.store(true, Ordering::Relaxed);
    }
    entry.answer();
}

/// Something is about to be written to a connection of our own: says whose turn it is to who has
/// the other end.
pub fn put_on_board(entry: &Entry) {
    let request = match entry.told() {
        None if is_of_loop_of_python(entry) => python::request_of_writer(),
        _ => of(entry),
    };
    entry.write_for(request);
    if let (Some(line), Some(board)) = (entry.line(), process::board()) {
        board.set_turn(line, request);
    }
}

/// A loop serves many connections, one at a time. What it has read from one of our own is for the
/// request for which that was written to last: it goes on with what it asked for.
pub fn goes_on_with(entry: &Entry) {
    if !entry.is_accepted() {
        loop_is_at(entry.written_for());
    }
}

/// A connection was accepted, or one of our own is being made.
pub fn opened(entry: &Entry) {
    match entry.is_accepted() {
        true => loop_is_at(0),
        false => entry.write_for(in_hand()),
    }
}

/// A loop is at something else, for this request.
fn loop_is_at(request: u64) {
    MINE.with(|mine| {
        if mine.is_loop.get() {
            mine.taken.set(Some(request));
        }
    });
}

/// Whether the thread is a loop, which must not wait.
pub fn is_loop() -> bool {
    MINE.with(|mine| mine.is_loop.get())
}

/// The thread is a loop, and done with all that it has read so far.
pub fn loops() {
    MINE.with(|mine| {
        mine.is_loop.set(true);
        mine.let_go_on.set(0);
    });
    loop_is_at(0);
}

/// The bytes are about to be written to a connection of our own: what the request draws and reads
/// from here on is known to come behind them.
pub fn is_behind(entry: &Entry, stream: u64, bytes: &[u8]) {
    static STATEMENTS: Statements = Statements::new();
    if let Some(place) = Place::behind(bytes, stream, &STATEMENTS) {
        is_at(entry, place);
    }
}

/// The bytes were read from a connection to the database.
pub fn is_answered(entry: &Entry, bytes: &[u8]) {
    if let Some(place) = Place::behind_answer(bytes) {
        is_at(entry, place);
    }
}

fn is_at(entry: &Entry, place: Place) {
    // A loop makes sessions for whom it may, while the request goes on with another one.
    if MINE.with(|mine| mine.is_loop.get()) && matches!(place, Place::CONNECTING | Place::CONNECTED)
    {
        return;
    }
    let request = of(entry);
    if request == 0 && !is_apart() {
        asks_for_session(entry, place);
    } else if connects_by_itself(place) {
    } else if is_apart() {
        change_apart(|apart| {
            apart.is_connecting = place == Place::CONNECTING;
            apart.walk.writes(place);
        });
    } else if let Some(board) = process::board().filter(|_| request != 0) {
        board.pins().writes(request, place);
    }
}

/// Whether this is about a session that what goes on in the thread asks for by itself.
fn connects_by_itself(place: Place) -> bool {
    MINE.with(|mine| {
        let is_known = mine.connects.get().is_some();
        if is_known {
            mine.connects.set(Some(place == Place::CONNECTING));
        }
        is_known && matches!(place, Place::CONNECTING | Place::CONNECTED)
    })
}

/// From here on it is known whether what goes on in the thread asks for a session; `None`: that is
/// known of its request. Returns what was known.
pub fn set_connecting(connects: Option<bool>) -> Option<bool> {
    MINE.with(|mine| mine.connects.replace(connects))
}

/// Whether what is drawn now for this request may prove a password to a database.
pub fn is_connecting(board: &Board, request: u64) -> bool {
    let own = MINE.with(|mine| mine.connects.get());
    own.unwrap_or_else(|| board.pins().place(request) == Place::CONNECTING)
}

/// Outside of requests: a session is asked for by a connection, or is there.
fn asks_for_session(entry: &Entry, place: Place) {
    let asks = place == Place::CONNECTING;
    if (asks || place == Place::CONNECTED) && entry.asks_for_session(asks) != asks {
        MINE.with(|mine| {
            let sessions = mine.sessions.get();
            match asks {
                true => {
                    mine.sessions.set(sessions.saturating_add(1));
                    mine.session_draws.set(SESSION_DRAWS);
                }
                false => mine.sessions.set(sessions.saturating_sub(1)),
            }
        });
    }
}

/// One that fails is never had. What the thread draws so much later is not for it.
const SESSION_DRAWS: u32 = 16;

/// Whether what the thread draws now, outside of requests, may prove a password to a database.
pub fn draws_for_session() -> bool {
    MINE.with(|mine| {
        let left = mine.session_draws.get();
        let draws = mine.sessions.get() > 0 && left > 0;
        mine.session_draws
            .set(left.saturating_sub(u32::from(draws)));
        draws
    })
}

pub fn is_apart() -> bool {
    MINE.with(|mine| mine.is_apart.get())
}

fn apart() -> Option<Apart> {
    MINE.with(|mine| mine.is_apart.get().then(|| mine.apart.get()))
}

fn change_apart(change: impl FnOnce(&mut Apart)) {
    MINE.with(|mine| {
        let mut apart = mine.apart.get();
        change(&mut apart);
        mine.apart.set(apart);
    });
}

/// Where the thread reads the clock and for whose work, if it works apart from its request, or
/// reads the clock for a library.
pub fn asks_apart() -> Option<Asks> {
    let walk = apart().map(|apart| apart.walk).or_else(for_library);
    walk.map(|walk| walk.asks())
}

/// Whether it does either.
pub fn reads_apart() -> bool {
    is_apart() || for_library().is_some()
}

/// What the thread reads of its request's clock, if it does either.
pub fn read_apart<T>(read: impl FnOnce(&mut Walk) -> T) -> Option<T> {
    let Some(Apart { mut walk, .. }) = apart() else {
        return for_library().map(|mut walk| read(&mut walk));
    };
    let reading = read(&mut walk);
    change_apart(|apart| apart.walk = walk);
    Some(reading)
}

/// Where the thread reads the clock for a library: where its request is, and apart from that. Each
/// reading is by itself, whether there were some before or not.
fn for_library() -> Option<Walk> {
    let (request, library) = MINE.with(|mine| mine.library.get());
    let board = process::board().filter(|_| request != 0 && request == of_code())?;
    let mut key = [0; KEY];
    key[0] = library;
    let mut walk = Walk::new(key);
    walk.writes(board.pins().place(request));
    Some(walk)
}

/// Until [`reads_as_ever`], a library that is known by this number reads the clock for itself: it
/// may have no need to in a replay, or need to where it had none. That shifts none of the request's
/// readings.
pub fn reads_for_library(library: u8) {
    MINE.with(|mine| mine.library.set((of_code(), library)));
}

pub fn reads_as_ever() {
    MINE.with(|mine| mine.library.set((0, 0)));
}

/// Where its next draw comes from, if it works apart from its request.
pub fn draw_apart() -> Option<Draw> {
    let is_pinned = process::board().is_some_and(|board| board.replays() || board.pins().has_key());
    let is_mine = |apart: &Apart| is_pinned && !apart.is_connecting;
    let apart = apart().filter(is_mine)?;
    change_apart(|apart| apart.draws += 1);
    Draw::apart(*apart.walk.key(), apart.draws)
}

/// The request that a connection of our own is written to for; 0: none, or it is not known.
pub fn of(entry: &Entry) -> u64 {
    entry
        .told()
        .unwrap_or_else(|| match is_of_loop_of_python(entry) {
            true => entry.written_for(),
            false => current(),
        })
}

/// Whether it leads to the database, and the thread is one of which a shim says that it works for
/// nobody: a loop of Python does so, which serves several requests. What it writes itself is for
/// the context's.
fn is_of_loop_of_python(entry: &Entry) -> bool {
    let is_loop = || MINE.with(|mine| mine.told.get() == Some(0));
    entry.leads_to_database() && is_loop() && python::has_variable()
}

/// The request that the thread works on; 0: none, or it is not known.
pub fn current() -> u64 {
    MINE.with(|mine| {
        if let Some(told) = mine.told.get().or_else(|| mine.taken.get()) {
            return told;
        }
        let read = mine.read.get();
        if read == 0 || mine.several.get() {
            return 0;
        }
        // What belongs to the request may come behind its answer, until the work on it is over.
        let is_own = || mine.is_work.get() && mine.answered.get() == read;
        match mine.is_unanswered() || is_own() || !MOVES.load(Ordering::Relaxed) {
            true => read,
            false => 0,
        }
    })
}

/// The request for which the thread hands work to another one; 0: none, or it is not known. A loop
/// that serves several hands a request on when it has read it.
pub fn in_hand() -> u64 {
    MINE.with(|mine| {
        let is_said = mine.told.get().is_some() || mine.taken.get().is_some();
        match !is_said && mine.several.get() && mine.is_unanswered() {
            true => mine.read.get(),
            false => current(),
        }
    })
}

/// From here on the thread works on what was handed over for this request, or for none (0); `None`:
/// on what it reads.
pub fn takes(request: Option<u64>) {
    MINE.with(|mine| mine.taken.set(request));
}

/// What [`takes`] was told last, unless the thread has read a request since.
pub fn taken() -> Option<u64> {
    MINE.with(|mine| mine.taken.get())
}

/// Whether the thread is a loop that does something of its own, for no request.
pub fn loops_for_nobody() -> bool {
    MINE.with(|mine| mine.is_loop.get() && mine.told.get().is_none() && mine.taken.get() == Some(0))
}

/// Something goes on in the thread that has waited for it, for this request, or for none (0);
/// `None`: it is not known for which.
pub fn lets_go_on(request: Option<u64>) {
    MINE.with(|mine| {
        let depth = mine.let_go_on.get();
        if let Some(before) = mine.before.get(depth) {
            before.set(mine.taken.get());
        }
        mine.let_go_on.set(depth.saturating_add(1));
        if request.is_some() {
            mine.taken.set(request);
        }
    });
}

/// The thread is back from that.
pub fn has_let_go_on() {
    MINE.with(|mine| {
        let Some(depth) = mine.let_go_on.get().checked_sub(1) else {
            return;
        };
        mine.let_go_on.set(depth);
        if let Some(before) = mine.before.get(depth) {
            mine.taken.set(before.get());
        }
    });
}

/// The same for a thread of a pool, which has nothing else to do than such work: what it has read
/// before is another's by now, answered or not.
pub fn begins(request: u64) {
    MINE.with(|mine| {
        mine.forget();
        mine.is_work.set(true);
        mine.taken.set(Some(request));
    });
}

/// That work is over.
pub fn ends() {
    MINE.with(Mine::forget);
}

/// What the thread works on, for another one that goes on with it: a runtime has more threads than
/// the system knows of. Each is taken up by one of ours where it can go on, and left where it has
/// to wait.
///
/// ```text
///   bits  0       it is told at all
///         1       what is worked on was handed over, else read
///         2       several requests are served at once
///         3       the request's first bytes were read, too
///         4       it was answered
///         5..7    how often it has stepped aside
///         7..27   the descriptor from which it was read, and 1
///         27..    the request, short
/// ```
pub fn packed() -> u64 {
    MINE.with(|mine| {
        let request = mine.taken.get().unwrap_or_else(|| mine.read.get());
        let (of, depth) = mine.aside.get();
        let depth = if of == request { depth.min(ASIDE) } else { 0 };
        let descriptor = u64::try_from(mine.descriptor.get().saturating_add(1)).unwrap_or(0);
        let Some(request) = short(request).filter(|_| descriptor < 1 << DESCRIPTOR_BITS) else {
            return 0;
        };
        1 | u64::from(mine.taken.get().is_some()) << 1
            | u64::from(mine.several.get()) << 2
            | u64::from(mine.begun.get() == mine.read.get()) << 3
            | u64::from(mine.answered.get() == mine.read.get()) << 4
            | u64::from(depth) << ASIDE_FROM
            | descriptor << DESCRIPTOR_FROM
            | request << REQUEST_FROM
    })
}

/// Of what is handed over for a request, as [`packed`] has it.
pub fn packed_work(request: u64) -> u64 {
    short(request).map_or(0, |request| 0b11 | request << REQUEST_FROM)
}

/// Whether what was packed is work on a request.
pub fn is_packed(packed: u64) -> bool {
    packed >> REQUEST_FROM != 0
}

const ASIDE_FROM: u32 = 5;
const ASIDE: u32 = 3;
const DESCRIPTOR_FROM: u32 = 7;
const DESCRIPTOR_BITS: u32 = 20;
const REQUEST_FROM: u32 = DESCRIPTOR_FROM + DESCRIPTOR_BITS;
const _: () = assert!(REQUEST_FROM + short::BITS == u64::BITS);

/// From here on the thread goes on with this, and with nothing that it did before; 0: for no
/// request.
pub fn unpack(packed: u64) {
    MINE.with(|mine| {
        mine.forget();
        let is_set = |bit: u32| packed >> bit & 1 == 1;
        let request = short::request(packed >> REQUEST_FROM);
        if !is_set(0) || is_set(1) {
            mine.taken.set(Some(request));
        } else {
            mine.read.set(request);
            mine.begun.set(if is_set(3) { request } else { 0 });
            mine.answered.set(if is_set(4) { request } else { 0 });
        }
        mine.is_work.set(true);
        mine.several.set(is_set(2));
        let descriptor = packed >> DESCRIPTOR_FROM & ((1 << DESCRIPTOR_BITS) - 1);
        mine.descriptor.set(descriptor as i32 - 1);
        let depth = packed >> ASIDE_FROM & u64::from(ASIDE);
        mine.aside.set((request, depth as u32));
    });
}

/// The request that the code works on which the thread runs at this moment; 0: none, or it is not
/// known. In a loop that serves several, another one than that of the thread.
pub fn of_code() -> u64 {
    match current() {
        0 => python::request(),
        request if is_aside(request) => 0,
        request => request,
    }
}

/// What the thread draws and reads from here on is not for the request that it works on, as long as
/// it works on that one.
pub fn step_aside() {
    let request = current();
    MINE.with(|mine| {
        let (of, depth) = mine.aside.get();
        let before = if of == request { depth } else { 0 };
        mine.aside.set((request, before.saturating_add(1)));
    });
}

/// From here on this code draws and reads in the thread; `None`: it is found out.
pub fn set_caller(caller: Option<Caller>) {
    MINE.with(|mine| mine.caller.set(caller));
}

pub fn caller() -> Option<Caller> {
    MINE.with(|mine| mine.caller.get())
}

/// Undoes one of [`step_aside`].
pub fn step_back() {
    MINE.with(|mine| {
        let (of, depth) = mine.aside.get();
        mine.aside.set((of, depth.saturating_sub(1)));
    });
}

fn is_aside(request: u64) -> bool {
    let (of, depth) = MINE.with(|mine| mine.aside.get());
    of == request && depth > 0
}

/// From here on the thread works on this request; `None`: on what it reads.
pub fn set(request: Option<u64>) {
    MINE.with(|mine| {
        mine.told.set(request);
        mine.is_apart.set(false);
    });
}

/// From here on the thread works for this request, but apart from it: another thread goes on with
/// it. Which of the two draws first, or reads the clock, may be otherwise in a replay. So it draws
/// by this key, which the request has drawn, and has places of its own.
pub fn set_apart(request: u64, key: [u8; KEY]) {
    MINE.with(|mine| {
        mine.told.set(Some(request));
        mine.is_apart.set(true);
        // It may have been interrupted, and goes on.
        if *mine.apart.get().walk.key() != key {
            mine.apart.set(Apart {
                draws: 0,
                is_connecting: false,
                walk: Walk::new(key),
            });
        }
    });
}

/// From here on what is written to a connection of our own is for this request; `None`: for the one
/// that the thread works on.
pub fn set_of(descriptor: i32, request: Option<u64>) {
    if let Some(entry) = descriptors::entry(descriptor).filter(|entry| !entry.is_accepted()) {
        entry.tell(request);
    }
}

/// The request that was read last from an accepted connection; 0: from none.
pub fn read_from(descriptor: i32) -> u64 {
    let accepted = descriptors::entry(descriptor).filter(|entry| entry.is_accepted());
    accepted.map_or(0, Entry::turn)
}

/// The request that the thread has read last.
pub fn last_read() -> u64 {
    MINE.with(|mine| mine.read.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_loop_began_for_nobody_goes_on_for_nobody() {
        takes(Some(0));
        assert!(!loops_for_nobody());
        loops();
        assert!(loops_for_nobody());
        takes(Some(7));
        assert!(!loops_for_nobody());
        lets_go_on(Some(0));
        assert_eq!((current(), loops_for_nobody()), (0, true));
        // Of which it is not known for whom it waits.
        takes(Some(8));
        lets_go_on(None);
        assert_eq!(current(), 8);
        has_let_go_on();
        has_let_go_on();
        assert_eq!(current(), 7);
    }

    #[test]
    fn what_a_thread_works_on_is_the_same_where_it_is_unpacked() {
        takes(Some(1 << 32));
        let handed = packed();
        assert_eq!(handed, packed_work(1 << 32) | 0b11000);
        MINE.with(|mine| {
            mine.forget();
            mine.read.set(5);
            mine.begun.set(5);
            mine.descriptor.set(77);
            mine.aside.set((5, 2));
        });
        let read = packed();
        unpack(handed);
        assert_eq!(current(), 1 << 32);
        unpack(read);
        let of = |mine: &Mine| (mine.read.get(), mine.begun.get(), mine.descriptor.get());
        assert_eq!(MINE.with(of), (5, 5, 77));
        assert_eq!((packed(), is_aside(5)), (read, true));
        // A later recorder of a trace has its number in front.
        let later = 3 << 48 | 7;
        unpack(packed_work(later));
        assert_eq!(current(), later);
        // What has no room is nobody's.
        takes(Some(1 << 37));
        assert_eq!((packed(), packed_work(1 << 37)), (0, 0));
        unpack(0);
        assert_eq!(
            (current(), MINE.with(|mine| mine.taken.get())),
            (0, Some(0))
        );
    }
}
