//! Runs of units: blocks above 1 KiB, and the spans that smaller ones are cut from.
//!
//! Free runs are kept in bins by length (two levels, sixteen steps to a power of two) and joined
//! with their free neighbours at once. Everything here is a function of the calls alone: no clock,
//! no counter that another thread moves.

use super::sizes::{UNIT, UNITS_PER_PAGE};
use super::space::{self, Entry, Fresh};

const STEPS: usize = 16;
const LEVELS: usize = 27;
/// How many runs of a bin are looked at that are of about the right length, before a longer one is
/// cut.
const LOOKS: usize = 8;
/// Free memory that was in use is given back to the kernel when this much has come together and a
/// quarter of what the arena ever reached, in pieces of at least 64 KiB.
const DISCARD_UNITS: usize = (16 << 20) / UNIT;
const DISCARD_PIECE_UNITS: usize = (64 << 10) / UNIT;

/// The beginning of a free run.
#[repr(C)]
struct Free {
    next: *mut Free,
    previous: *mut Free,
    /// Units of it that the kernel may have memory for.
    touched: usize,
}

/// A run that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub address: usize,
    /// Whether it is known to read as zero.
    pub zero: bool,
}

/// The runs of one arena.
#[repr(C)]
pub struct Runs {
    fresh: Fresh,
    /// Units in free runs that the kernel may have memory for, and at how many something is given
    /// back.
    touched: usize,
    discard_at: usize,
    levels: u32,
    steps: [u16; LEVELS],
    bins: [[*mut Free; STEPS]; LEVELS],
}

fn bin_of(units: usize) -> (usize, usize) {
    if units < STEPS {
        (0, units)
    } else {
        let power = units.ilog2() as usize;
        (power - 3, (units >> (power - 4)) & (STEPS - 1))
    }
}

impl Runs {
    pub fn new(owner: usize) -> Self {
        Runs {
            fresh: Fresh::own(owner),
            touched: 0,
            discard_at: DISCARD_UNITS,
            levels: 0,
            steps: [0; LEVELS],
            bins: [[std::ptr::null_mut(); STEPS]; LEVELS],
        }
    }

    /// A run from the free ones, its first byte at a multiple of `aligned` units.
    ///
    /// # Safety
    /// All methods: the caller is alone with the arena.
    pub unsafe fn take_free(&mut self, units: usize, aligned: usize) -> Option<Run> {
        // Runs begin at any unit, so one for an alignment may need to be longer by all but one.
        let free = self.find(units + aligned - 1)?;
        // SAFETY: runs in bins are ours.
        unsafe {
            let Entry::Free(length) = space::entry(free as usize) else {
                corrupt(free as usize)
            };
            let touched = self.unlink(free, length);
            let begin = free as usize;
            let address = begin.next_multiple_of(aligned * UNIT);
            let before = (address - begin) / UNIT;
            let after = length - before - units;
            if before > 0 {
                self.link(begin, before, touched.min(before));
            }
            if after > 0 {
                self.link(address + units * UNIT, after, touched.min(after));
            } else {
                space::set_entry(address + (units - 1) * UNIT, Entry::Inside);
            }
            space::set_entry(address, Entry::Used(units));
            Some(Run {
                address,
                zero: false,
            })
        }
    }

    /// Whether the range has so much left that was never used.
    pub fn has_fresh(&self, units: usize, aligned: usize) -> bool {
        self.fresh.fits(
            self.fresh.next.next_multiple_of(aligned * UNIT),
            units * UNIT,
        )
    }

    /// Whether it is there without asking the kernel.
    #[inline]
    pub fn reaches_fresh(&self, units: usize, aligned: usize) -> bool {
        self.fresh.reaches(
            self.fresh.next.next_multiple_of(aligned * UNIT),
            units * UNIT,
        )
    }

    /// Asks the kernel for it. `false`: memory is short.
    pub fn reach_fresh(&mut self, units: usize, aligned: usize) -> bool {
        self.fresh.reach(
            self.fresh.next.next_multiple_of(aligned * UNIT),
            units * UNIT,
        )
    }

    /// A run that ends in memory that was never used; it may begin with the free run at the end of
    /// what was. `None` where [`Runs::reach_fresh`] was not called or did not succeed.
    ///
    /// # Safety
    /// As [`Runs::take_free`].
    pub unsafe fn take_fresh(&mut self, units: usize, aligned: usize) -> Option<Run> {
        // SAFETY: the unit before `next` is in the range: its first page is never handed out. Runs
        // in bins are ours.
        unsafe {
            let next = self.fresh.next;
            let mut begin = next;
            if let Entry::Free(length) = space_entry_before(self.fresh)
                && (next - length * UNIT).next_multiple_of(aligned * UNIT) < next
            {
                begin = next - length * UNIT;
            }
            let address = begin.next_multiple_of(aligned * UNIT);
            let bytes = units * UNIT;
            if !self.fresh.reaches(address, bytes) {
                return None;
            }
            if begin < next {
                self.unlink(begin as *mut Free, (next - begin) / UNIT);
                space::set_entry(next - UNIT, Entry::Inside);
                space::set_entry(begin, Entry::Inside);
            }
            // The run at the end may be longer than what is needed.
            self.fresh.next = next.max(address + bytes);
            space::set_entry(address, Entry::Used(units));
            let before = (address - begin) / UNIT;
            let after = (self.fresh.next - address) / UNIT - units;
            if before > 0 {
                self.give(begin, before);
            }
            if after > 0 {
                self.give(address + bytes, after);
            }
            Some(Run {
                address,
                zero: address >= next,
            })
        }
    }

    /// Goes on in another range. What is left of the present one is used no more.
    pub fn extend(&mut self, fresh: Fresh) {
        self.fresh = fresh;
    }

    /// Takes back a run, of the arena's own ranges.
    ///
    /// # Safety
    /// As [`Runs::take_free`], and nobody uses the run.
    pub unsafe fn give(&mut self, address: usize, units: usize) {
        let mut begin = address;
        let mut length = units;
        let mut touched = units;
        // SAFETY: the neighbours' entries are in the maps, and what is free in our ranges is ours.
        unsafe {
            if let Entry::Free(before) = space::entry(address - UNIT) {
                begin -= before * UNIT;
                touched += self.unlink(begin as *mut Free, before);
                length += before;
                space::set_entry(address - UNIT, Entry::Inside);
                space::set_entry(address, Entry::Inside);
            }
            let end = address + units * UNIT;
            if let Entry::Free(after) = space::entry(end) {
                touched += self.unlink(end as *mut Free, after);
                length += after;
                space::set_entry(end, Entry::Inside);
            }
            self.link(begin, length, touched);
        }
        if self.touched > self.discard_at {
            // SAFETY: free runs are nobody's.
            unsafe { self.discard() };
        }
    }

    /// How many units must be reached with [`Runs::reach_fresh`] to make a used run longer where it
    /// lies; 0 if that is no help.
    ///
    /// # Safety
    /// As [`Runs::lengthen`].
    pub unsafe fn missing(&self, address: usize, units: usize, wanted: usize) -> usize {
        let end = address + units * UNIT;
        // SAFETY: as in `lengthen`.
        let free = match unsafe { space::entry(end) } {
            Entry::Free(after) => after,
            _ => 0,
        };
        let more = wanted.saturating_sub(units + free);
        let at_end = end + free * UNIT == self.fresh.next;
        if at_end && self.has_fresh(more, 1) && !self.reaches_fresh(more, 1) {
            more
        } else {
            0
        }
    }

    /// Makes a used run longer where it lies, if the memory behind it is free, and there.
    ///
    /// # Safety
    /// As [`Runs::take_free`]; the run is used and of the arena's own ranges.
    pub unsafe fn lengthen(&mut self, address: usize, units: usize, wanted: usize) -> bool {
        let end = address + units * UNIT;
        // SAFETY: as in `give`.
        unsafe {
            let (mut have, mut touched) = (units, 0);
            let free = match space::entry(end) {
                Entry::Free(after) => after,
                _ => 0,
            };
            have += free;
            if have < wanted {
                // Not in the maps if it is the end of another range.
                let at_end = end + free * UNIT == self.fresh.next;
                if !at_end || !self.fresh.reaches(address, wanted * UNIT) {
                    return false;
                }
            }
            if free > 0 {
                touched = self.unlink(end as *mut Free, free);
                space::set_entry(end, Entry::Inside);
                space::set_entry(end + (free - 1) * UNIT, Entry::Inside);
            }
            self.fresh.next = self.fresh.next.max(address + wanted * UNIT);
            if have > wanted {
                self.link(
                    address + wanted * UNIT,
                    have - wanted,
                    touched.min(have - wanted),
                );
            }
            space::set_entry(address, Entry::Used(wanted));
        }
        true
    }

    /// Makes a used run shorter.
    ///
    /// # Safety
    /// As [`Runs::lengthen`].
    pub unsafe fn shorten(&mut self, address: usize, units: usize, wanted: usize) {
        if wanted < units {
            // SAFETY: the rest is nobody's any more.
            unsafe {
                space::set_entry(address, Entry::Used(wanted));
                self.give(address + wanted * UNIT, units - wanted);
            }
        }
    }

    /// Everything free goes back to the kernel, as far as it is whole pages. Whether there was any.
    ///
    /// # Safety
    /// As [`Runs::take_free`].
    pub unsafe fn trim(&mut self) -> bool {
        let before = self.touched;
        // SAFETY: free runs are nobody's.
        unsafe { self.discard() };
        self.touched < before
    }

    /// Units in free runs, and how many there are.
    pub fn free_units(&self) -> (usize, usize) {
        let (mut units, mut count) = (0, 0);
        for bin in self.bins.iter().flatten() {
            let mut free = *bin;
            while !free.is_null() {
                // SAFETY: runs in bins are ours.
                if let Entry::Free(length) = unsafe { space::entry(free as usize) } {
                    units += length;
                    count += 1;
                }
                // SAFETY: as above.
                free = unsafe { (*free).next };
            }
        }
        (units, count)
    }

    /// Units from the range's beginning to what was never used.
    pub fn used_to(&self) -> usize {
        self.fresh.next
    }

    fn find(&self, units: usize) -> Option<*mut Free> {
        let (level, step) = bin_of(units);
        if level >= LEVELS {
            return None;
        }
        let mut free = self.bins[level][step];
        for _ in 0..LOOKS {
            if free.is_null() {
                break;
            }
            // SAFETY: runs in bins are ours.
            unsafe {
                if matches!(space::entry(free as usize), Entry::Free(length) if length >= units) {
                    return Some(free);
                }
                free = (*free).next;
            }
        }
        // Every run of a later bin is long enough.
        let later = self.steps[level] & (u16::MAX << step << 1);
        let (level, later) = if later != 0 {
            (level, later)
        } else {
            let levels = self.levels & (u32::MAX << level << 1);
            if levels == 0 {
                return None;
            }
            let level = levels.trailing_zeros() as usize;
            (level, self.steps[level])
        };
        Some(self.bins[level][later.trailing_zeros() as usize])
    }

    /// # Safety
    /// The units are nobody's, and no entry of the map says otherwise.
    unsafe fn link(&mut self, begin: usize, units: usize, touched: usize) {
        let (level, step) = bin_of(units);
        let head = self.bins[level][step];
        let free = begin as *mut Free;
        // SAFETY: a unit has room for the header.
        unsafe {
            free.write(Free {
                next: head,
                previous: std::ptr::null_mut(),
                touched,
            });
            if !head.is_null() {
                (*head).previous = free;
            }
            space::set_entry(begin, Entry::Free(units));
            space::set_entry(begin + (units - 1) * UNIT, Entry::Free(units));
        }
        self.bins[level][step] = free;
        self.steps[level] |= 1 << step;
        self.levels |= 1 << level;
        self.touched += touched;
    }

    /// Takes a run out of its bin and says how much of it was touched. Its entries stay.
    ///
    /// # Safety
    /// It is in its bin.
    unsafe fn unlink(&mut self, free: *mut Free, units: usize) -> usize {
        let (level, step) = bin_of(units);
        // SAFETY: the caller's promise.
        unsafe {
            let Free {
                next,
                previous,
                touched,
            } = free.read();
            if !next.is_null() {
                (*next).previous = previous;
            }
            if previous.is_null() {
                if self.bins[level][step] != free {
                    corrupt(free as usize);
                }
                self.bins[level][step] = next;
                if next.is_null() {
                    self.steps[level] &= !(1 << step);
                    if self.steps[level] == 0 {
                        self.levels &= !(1 << level);
                    }
                }
            } else {
                (*previous).next = next;
            }
            self.touched -= touched;
            touched
        }
    }

    unsafe fn discard(&mut self) {
        let (first_level, _) = bin_of(DISCARD_PIECE_UNITS);
        for level in first_level..LEVELS {
            for step in 0..STEPS {
                let mut free = self.bins[level][step];
                while !free.is_null() {
                    // SAFETY: runs in bins are ours; the page with the header stays.
                    unsafe {
                        if (*free).touched >= DISCARD_PIECE_UNITS
                            && let Entry::Free(units) = space::entry(free as usize)
                        {
                            space::discard(
                                free as usize + size_of::<Free>(),
                                units * UNIT - size_of::<Free>(),
                            );
                            let kept = (2 * UNITS_PER_PAGE).min((*free).touched);
                            self.touched -= (*free).touched - kept;
                            (*free).touched = kept;
                        }
                        free = (*free).next;
                    }
                }
            }
        }
        self.discard_at =
            self.touched + DISCARD_UNITS + self.fresh.next % space::RANGE_BYTES / UNIT / 4;
    }
}

/// The entry of the last unit before what was never used.
///
/// # Safety
/// None beyond the range being mapped, if anything of it was handed out.
unsafe fn space_entry_before(fresh: Fresh) -> Entry {
    if fresh.is_untouched() {
        return Entry::Inside;
    }
    // SAFETY: something was handed out, so the maps reach that far.
    unsafe { space::entry(fresh.next - UNIT) }
}

#[cold]
fn corrupt(address: usize) -> ! {
    super::fatal::fatal("the heap is damaged", address)
}
