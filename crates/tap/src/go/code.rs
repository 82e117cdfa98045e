//! Changes of the program's code.
//!
//! ```text
//!   a function of Go    its first bytes ─────▶ jmp near
//!   near                jmp entry                      (one of entries)
//!                       the first bytes; jmp behind them in the function
//! ```
//!
//! Near is memory within the reach of a jump. What is moved there is what Go's compiler puts at the
//! beginning of functions, and nothing else.

use std::sync::atomic::Ordering;

use super::image::{Function, Image, SYSCALL, code};
use super::{entries, ids, pools};
use crate::memory::protect;

const PAGE: usize = 4096;
/// What the entry does itself of the function that makes system calls, up to the comparison.
const SYSCALL_MOVED: usize = SYSCALL.len() - 6;
/// The jump in a function.
const JUMP: usize = 5;

pub struct Changes {
    syscall: usize,
    goroutine: Moved,
    random: Option<Moved>,
    /// What makes pools, with the code that comes before.
    pools: Vec<(Moved, Vec<u8>)>,
    ids: Vec<ids::Change>,
}

/// A function whose beginning is moved.
struct Moved {
    at: usize,
    start: Start,
}

/// The first instructions of a function.
struct Start {
    length: usize,
    /// Where the stack is too small: where the jump's distance stands, and where it goes.
    grows: Option<(usize, usize)>,
}

impl Changes {
    /// `None` if something is not as it is known.
    pub fn of(image: &Image) -> Option<Self> {
        let now = image.address(Function::Now)?;
        entries::set_running(running(now)?);
        entries::set_measured(measured(now)?);
        let comparing = (image.range(Function::Since), image.range(Function::Until));
        if let (Some(since), Some(until)) = comparing {
            entries::set_comparing([since, until]);
        }
        let pools = pools::of(image).into_iter();
        Some(Self {
            syscall: image.address(Function::Syscall)?,
            goroutine: Moved::at(image.address(Function::NewGoroutine)?)?,
            random: image.address(Function::Random).and_then(Moved::at),
            pools: pools
                .filter_map(|(at, before)| Some((Moved::at(at)?, before)))
                .collect(),
            ids: ids::of(image),
        })
    }

    pub fn make(&self) -> Option<()> {
        let mut near = Near::to(self.syscall)?;
        entries::BEHIND_SYSCALL.store(self.syscall + SYSCALL_MOVED, Ordering::Relaxed);
        let whole = near.moves(&self.goroutine)?;
        entries::NEW_GOROUTINE.store(whole, Ordering::Relaxed);
        let mut jumps = vec![
            (self.syscall, near.jump(entries::syscall as *const ())?),
            (
                self.goroutine.at,
                near.jump(entries::new_goroutine as *const ())?,
            ),
        ];
        if let Some(random) = &self.random {
            let whole = near.moves(random)?;
            entries::RANDOM.store(whole, Ordering::Relaxed);
            jumps.push((random.at, near.jump(entries::random as *const ())?));
        }
        for (moved, before) in &self.pools {
            jumps.push((moved.at, near.put(before)?));
            near.moves(moved)?;
        }
        jumps.extend(self.ids.iter().filter_map(|change| near.id(change)));
        let is_done = near.finish() && jumps.into_iter().all(|(at, near)| replace(at, near));
        is_done.then_some(())
    }
}

/// Where the runtime has which goroutine a thread runs, as a distance within what it has of a
/// thread. The function that reads the clock changes to the thread's own stack, as the entries do,
/// and so says where all that is.
fn running(now: usize) -> Option<usize> {
    /// What it has of the thread is at this distance in what it has of a goroutine.
    const THREAD: [u8; 4] = [0x49, 0x8b, 0x5e, 0x30];
    /// If it runs, over this: the thread's first goroutine, and its stack.
    const CHANGES: [u8; 9] = [0x75, 0x07, 0x48, 0x8b, 0x13, 0x48, 0x8b, 0x62, 0x38];
    const COMPARES: [u8; 3] = [0x4c, 0x3b, 0xb3];
    const LONG: usize = 7;
    // SAFETY: the function is longer.
    let code = unsafe { code(now, 128) };
    code.windows(THREAD.len()).find(|at| *at == THREAD)?;
    let changes = code.windows(CHANGES.len()).position(|at| at == CHANGES)?;
    let compares = code.get(changes.checked_sub(LONG)?..changes)?;
    let distance = compares.strip_prefix(&COMPARES)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*distance)).ok()
}

/// Where the function that reads the clock goes on behind its second call.
fn measured(now: usize) -> Option<usize> {
    const CALL: [u8; 2] = [0xff, 0xd0];
    // SAFETY: the function is longer.
    let code = unsafe { code(now, 160) };
    let calls = code.windows(CALL.len()).enumerate();
    let (second, _) = calls.filter(|(_, at)| *at == CALL).nth(1)?;
    now.checked_add(second)?.checked_add(CALL.len())
}

impl Moved {
    fn at(at: usize) -> Option<Self> {
        // SAFETY: each of these functions is longer.
        let start = start_of(unsafe { code(at, 32) }, at)?;
        Some(Self { at, start })
    }
}

fn start_of(code: &[u8], at: usize) -> Option<Start> {
    const COMPARES: [u8; 4] = [0x49, 0x3b, 0x66, 0x10];
    const FRAME: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
    const ROOM: [u8; 3] = [0x48, 0x83, 0xec];
    const MUCH_ROOM: [u8; 3] = [0x48, 0x81, 0xec];
    if let Some(then) = code.strip_prefix(&COMPARES) {
        let (length, far) = match then {
            [0x76, near, ..] => (6, i64::from(*near as i8)),
            [0x0f, 0x86, far @ ..] => (10, i64::from(i32::from_le_bytes(*far.first_chunk()?))),
            _ => return None,
        };
        let behind = i64::try_from(at.checked_add(length)?).ok()?;
        let to = usize::try_from(behind.checked_add(far)?).ok()?;
        return Some(Start {
            length,
            grows: Some((COMPARES.len(), to)),
        });
    }
    let then = code.strip_prefix(&FRAME)?;
    let more = if then.starts_with(&ROOM) {
        4
    } else if then.starts_with(&MUCH_ROOM) {
        7
    } else {
        return None;
    };
    Some(Start {
        length: FRAME.len() + more,
        grows: None,
    })
}

/// A page of code near the program's.
struct Near {
    page: usize,
    used: usize,
}

impl Near {
    fn to(code: usize) -> Option<Self> {
        const STEP: usize = 1 << 20;
        const REACH: usize = 1 << 29;
        let base = code & !(STEP - 1);
        let below = (1..).map(|step| base.wrapping_sub(step * STEP));
        let above = (1..).map(|step| base.wrapping_add(step * STEP));
        let tries = below.zip(above).flat_map(|(below, above)| [below, above]);
        for place in tries.take(2 * REACH / STEP) {
            // SAFETY: new memory, where there is none.
            let page = unsafe {
                libc::mmap(
                    place as *mut libc::c_void,
                    PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
            if page == place as *mut libc::c_void {
                return Some(Self {
                    page: place,
                    used: 0,
                });
            }
        }
        None
    }

    fn put(&mut self, bytes: &[u8]) -> Option<usize> {
        let at = self.page.checked_add(self.used)?;
        let used = self.used.checked_add(bytes.len())?;
        if used > PAGE {
            return None;
        }
        // SAFETY: there is room for so many, and nobody runs it yet.
        unsafe { (at as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.used = used;
        Some(at)
    }

    /// A jump to anywhere.
    fn jump(&mut self, to: *const ()) -> Option<usize> {
        let at = self.put(&[0xff, 0x25, 0, 0, 0, 0])?;
        self.put(&(to as usize).to_le_bytes())?;
        Some(at)
    }

    /// The beginning of a function, and a jump to the rest of it: where that is.
    fn moves(&mut self, Moved { at, start }: &Moved) -> Option<usize> {
        // SAFETY: they were looked at.
        let bytes = unsafe { code(*at, start.length) };
        let moved = match start.grows {
            None => self.put(bytes)?,
            Some((compares, to)) => {
                let moved = self.put(bytes.get(..compares)?)?;
                // Over the jump that is behind it, or on to that.
                self.put(&[0x77, 14])?;
                self.jump(to as *const ())?;
                moved
            }
        };
        self.jump((at + start.length) as *const ())?;
        Some(moved)
    }

    /// What a function that gives ids jumps to, and where.
    fn id(&mut self, change: &ids::Change) -> Option<(usize, usize)> {
        let gives = |gives: ids::Gives| {
            // mov r11, …
            [&[0x49, 0xc7, 0xc3][..], &(gives as u32).to_le_bytes()].concat()
        };
        match change {
            ids::Change::Begins(at, what) => {
                let moved = Moved::at(*at)?;
                let called = self.put(&(entries::id_again as *const () as usize).to_le_bytes())?;
                let begins = self.put(&gives(*what))?;
                // call what is there; return, if it has said that it is done.
                let behind = self.page.checked_add(self.used)?.checked_add(6)?;
                let distance = called.wrapping_sub(behind) as i32;
                self.put(&[&[0xff, 0x15][..], &distance.to_le_bytes()].concat())?;
                self.put(&[0x72, 0x01, 0xc3])?;
                self.moves(&moved)?;
                Some((*at, begins))
            }
            ids::Change::Ends(end, what) => {
                let ends = self.put(&end.before)?;
                self.put(&gives(*what))?;
                self.jump(entries::id_told as *const ())?;
                Some((end.at, ends))
            }
        }
    }

    fn finish(&self) -> bool {
        // SAFETY: the page is ours.
        unsafe {
            protect(
                &(self.page..self.page + PAGE),
                libc::PROT_READ | libc::PROT_EXEC,
            )
        }
    }
}

fn replace(at: usize, near: usize) -> bool {
    let distance = near.wrapping_sub(at.wrapping_add(JUMP)) as isize;
    let Ok(distance) = i32::try_from(distance) else {
        return false;
    };
    let mut jump = [0xe9, 0, 0, 0, 0];
    jump[1..].copy_from_slice(&distance.to_le_bytes());
    // The jump may reach into the next page.
    let page = at & !(PAGE - 1);
    let pages = page..page + 2 * PAGE;
    // SAFETY: the program's code, which nobody runs yet.
    unsafe {
        if !protect(&pages, libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        (at as *mut u8).copy_from_nonoverlapping(jump.as_ptr(), JUMP);
        protect(&pages, libc::PROT_READ | libc::PROT_EXEC)
    }
}
