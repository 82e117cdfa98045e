//! Rows and their versions: the `unsafe` heart of the crate, and why it is sound.
//!
//! Elsewhere there are only calls of what is here, each saying which of the points below it relies
//! on, and `spare`, which keeps raw blocks of memory.
//!
//! ```text
//! row id ──▶ Slot ──head──▶ Version 9 ──prev──▶ Version 4 ──prev──▶ Version 2
//!            seq = 9        (newest)            └── once the horizon ≥ 9: freed, and all behind it
//!            key
//! ```
//!
//! Who does what:
//! - the **scheduler** gives out row ids and writes a slot's key (`create`);
//! - a **worker** installs a version when the head is the write that the log says comes before it
//!   (`install`), and frees what its own writes replaced (`Overwritten::free`);
//! - a **reader** that registered a snapshot looks for the newest version within it (`visible`);
//! - the **indexer** makes slots of dead rows free again (`recycle`).
//!
//! Words: *c* is the last write of the current snapshot, the *horizon* is the least of the
//! registered readers' snapshots and the start of the retention. The horizon never decreases, and
//! horizon ≤ c. All writes up to c are installed.
//!
//! Why it is sound:
//! 1. **One writer per row at any moment.** Every write names its predecessor, and no two writes
//!    name the same one (the scheduler is one thread). The slot's `seq` equals that predecessor
//!    only after it was installed and before its only successor is. So whoever finds its
//!    predecessor there is the only one who may replace the head: plain release stores (first the
//!    head, then `seq`) are enough. Whoever reads one of them acquires it, and with it everything
//!    behind.
//! 2. **Nobody reaches a freed version.** A version that was replaced by write *b* is freed once
//!    the horizon ≥ b. A reader at s ≥ horizon walks from the head to the first version with a
//!    number ≤ s and goes no further; since b is in the chain in front of it and b ≤ horizon ≤ s,
//!    it stops at b or earlier. A reader registers under the lock under which the horizon is
//!    computed, with an s that is not below it.
//! 3. **A freed version was let go.** A reader's last access happens before it unregisters (lock),
//!    that happens before the horizon passes (same lock), and that before the worker that acquires
//!    the horizon frees.
//! 4. **A worker's own reads.** To learn whether a write is next, a worker looks at the slot's
//!    `seq` only, never into a version: the head of a row with an outstanding write may well be
//!    replaced, and even freed, while it looks. It does look into a version to take values over
//!    (`base`), for a write *w* that is not installed, and only once `seq` says that this version
//!    is in. What replaces it is *w* itself or comes after it (the tombstone of a row that moved),
//!    thus above c and above the horizon. And a row with an outstanding write is not dead.
//! 5. **A dead row** is one whose last write is a tombstone (or older than a truncation) at or
//!    below the horizon, and which the scheduler has forgotten: there will be no more writes to it.
//!    Its slot is recycled when no set of runs that names it is held by anyone. Until then readers
//!    may look at its key and find it invisible.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::lock::lock;
use crate::log::{NO_ROW, body_cell, write_body};
use crate::spare::{self, Spare, block_bytes, prefetch};
use crate::types::Cell;

const CHUNK_BITS: u32 = if cfg!(miri) { 6 } else { 16 };
const CHUNK_ROWS: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = if cfg!(miri) { 1 << 6 } else { 1 << 16 };

/// How many rows there can be at once.
pub(crate) const ROWS_MAX: u32 = if cfg!(miri) {
    (CHUNK_ROWS * CHUNKS) as u32
} else {
    u32::MAX - 1
};

/// The slots of all rows. A slot never moves.
pub(crate) struct Rows {
    chunks: Box<[AtomicPtr<Slot>]>,
    /// What workers had not freed yet when they ended. Readers may still need it.
    leftovers: Mutex<Vec<Overwritten>>,
}

// SAFETY: slots are shared as the module's essay says; what they point to is plain memory that any
// thread may free.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

#[repr(C)]
struct Slot {
    head: AtomicPtr<Version>,
    /// The number of the head; 0 when there is none. Follows the head, so that a worker need not
    /// touch the version.
    seq: AtomicU64,
    key: UnsafeCell<Key>,
}

const _: () = assert!(size_of::<Slot>() == 32, "two slots share a cache line");

const KEY_INLINE: usize = 12;

/// A short key lies in the slot, a longer one on the heap. All zero is the empty key.
#[repr(C, packed(4))]
struct Key {
    len: u32,
    bytes: KeyBytes,
}

#[repr(C, packed(4))]
union KeyBytes {
    inline: [u8; KEY_INLINE],
    heap: *mut u8,
}

/// One version of one row; its body of `len` bytes follows in the same allocation.
#[repr(C)]
struct Version {
    seq: u64,
    prev: *mut Version,
    len: u32,
    layout: u32,
    cells: u32,
    tombstone: u32,
}

fn version_size(len: u32) -> usize {
    size_of::<Version>() + len as usize
}

/// What a version with `len` body bytes takes from the allocator, about.
fn version_bytes(len: u32) -> u64 {
    block_bytes(version_size(len))
}

/// What a row costs beside its versions: its slot, its share of the scheduler's map, and its key
/// when it is long.
pub(crate) fn row_bytes(key: &[u8]) -> u64 {
    let heap = if key.len() > KEY_INLINE {
        (key.len() as u64 + 8).next_multiple_of(16)
    } else {
        0
    };
    size_of::<Slot>() as u64 + heap
}

/// Frees a version and returns the bytes given back.
///
/// # Safety
/// The version is the caller's.
unsafe fn free_version(version: NonNull<Version>) -> u64 {
    // SAFETY: as the caller promised; the block was taken for this size.
    unsafe {
        let len = version.as_ref().len;
        spare::free(version.cast(), version_size(len));
        version_bytes(len)
    }
}

impl Rows {
    pub fn new() -> Rows {
        Rows {
            chunks: (0..CHUNKS)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            leftovers: Mutex::new(Vec::new()),
        }
    }

    fn slot(&self, row: u32) -> &Slot {
        let chunk = self.chunks[(row >> CHUNK_BITS) as usize].load(Ordering::Acquire);
        assert!(!chunk.is_null(), "row {row} was never created");
        // SAFETY: a chunk that is there has CHUNK_ROWS slots, is never moved, and is freed only
        // with `self`.
        unsafe { &*chunk.add(row as usize & (CHUNK_ROWS - 1)) }
    }

    /// Gives a row its key.
    ///
    /// # Safety
    /// Only the scheduler calls this, and with ids that are fresh or were recycled: nobody else
    /// knows the row yet.
    pub unsafe fn create(&self, row: u32, key: &[u8]) {
        let chunk = &self.chunks[(row >> CHUNK_BITS) as usize];
        if chunk.load(Ordering::Acquire).is_null() {
            let layout = chunk_layout();
            // SAFETY: the layout is not empty. All zero is a valid slot: no version, an empty key.
            let fresh = unsafe { alloc_zeroed(layout) };
            if fresh.is_null() {
                handle_alloc_error(layout);
            }
            chunk.store(fresh.cast(), Ordering::Release);
        }
        let len =
            u32::try_from(key.len()).unwrap_or_else(|_| panic!("a key of {} bytes", key.len()));
        // SAFETY: nobody else looks at this slot, says the caller, and a short key fits. It is
        // written right where it stays: a copy made on the stack first would be read in other
        // pieces than it was written in, and wait for all earlier stores.
        unsafe {
            let slot = self.slot(row).key.get();
            (&raw mut (*slot).len).write(len);
            let bytes = &raw mut (*slot).bytes;
            if key.len() <= KEY_INLINE {
                ptr::copy_nonoverlapping(key.as_ptr(), bytes.cast(), key.len());
            } else {
                (&raw mut (*bytes).heap)
                    .write_unaligned(Box::into_raw(Box::<[u8]>::from(key)).cast());
            }
        }
    }

    /// A row's key.
    ///
    /// # Safety
    /// The row was created before (with a synchronisation in between) and is not recycled as long
    /// as the key is borrowed: the scheduler has it in its map, or a set of runs that names it is
    /// held.
    pub unsafe fn key(&self, row: u32) -> &[u8] {
        // SAFETY: nobody writes the key while this borrow lasts, says the caller. The length tells
        // which field is there.
        unsafe {
            let key = &*self.slot(row).key.get();
            let len = key.len as usize;
            if len <= KEY_INLINE {
                &key.bytes.inline[..len]
            } else {
                std::slice::from_raw_parts(key.bytes.heap, len)
            }
        }
    }

    /// Fetches a row's slot into the cache, for someone who needs it soon.
    pub fn prefetch(&self, row: u32) {
        if row != NO_ROW {
            prefetch(self.slot(row));
        }
    }

    /// The number of the newest write to a row that is installed; 0 when there is none.
    pub fn installed(&self, row: u32) -> u64 {
        self.slot(row).seq.load(Ordering::Acquire)
    }

    /// Makes `draft` the head of its row and hands over what it replaced.
    ///
    /// # Safety
    /// The caller is the worker that holds the write whose predecessor is the row's `installed`
    /// write.
    pub unsafe fn install(&self, row: u32, draft: Draft) -> Option<Overwritten> {
        let slot = self.slot(row);
        let old = slot.head.load(Ordering::Acquire);
        let by = draft.seq();
        let version = draft.into_raw();
        // SAFETY: the draft was ours alone until the store below publishes it.
        unsafe { (*version).prev = old };
        slot.head.store(version, Ordering::Release);
        slot.seq.store(by, Ordering::Release);
        NonNull::new(old).map(|version| Overwritten { version, by })
    }

    /// The version that write `seq` made.
    ///
    /// # Safety
    /// The caller is a worker that holds a write, not installed yet, that takes values from this
    /// version. What replaces this version in its row is that write or one with a greater number.
    /// `installed` said that `seq` is in.
    pub unsafe fn base(&self, row: u32, seq: u64) -> Option<VersionRef<'_>> {
        let mut at = self.slot(row).head.load(Ordering::Acquire);
        // SAFETY: point 4 of the essay.
        unsafe {
            while !at.is_null() && (*at).seq > seq {
                at = (*at).prev;
            }
            NonNull::new(at)
                .filter(|at| at.as_ref().seq == seq)
                .map(|version| VersionRef::new(version))
        }
    }

    /// The newest version of a row with a number not above `seq`; it may be a tombstone.
    ///
    /// # Safety
    /// `seq` is registered as a reader's snapshot for as long as the version is borrowed, and the
    /// row id comes from a set of runs that is held.
    pub unsafe fn visible(&self, row: u32, seq: u64) -> Option<VersionRef<'_>> {
        let mut at = self.slot(row).head.load(Ordering::Acquire);
        // SAFETY: point 2 of the essay.
        unsafe {
            while !at.is_null() && (*at).seq > seq {
                at = (*at).prev;
            }
            NonNull::new(at).map(|version| VersionRef::new(version))
        }
    }

    /// Makes the slot of a dead row free for another key. Returns the bytes and versions that were
    /// given back.
    ///
    /// # Safety
    /// The row is dead and nobody has its id any more (point 5).
    pub unsafe fn recycle(&self, row: u32) -> (u64, u64) {
        let slot = self.slot(row);
        let head = slot.head.swap(ptr::null_mut(), Ordering::AcqRel);
        slot.seq.store(0, Ordering::Release);
        // SAFETY: nobody else has the row; versions behind the head belong to the worker that
        // replaced them.
        unsafe {
            let mut bytes = row_bytes(self.key(row));
            self.free_key(slot);
            if let Some(head) = NonNull::new(head) {
                bytes += free_version(head);
            }
            (bytes, u64::from(!head.is_null()))
        }
    }

    unsafe fn free_key(&self, slot: &Slot) {
        // SAFETY: the caller is the only one who has the slot.
        unsafe {
            let key = &mut *slot.key.get();
            if key.len as usize > KEY_INLINE {
                let bytes = ptr::slice_from_raw_parts_mut(key.bytes.heap, key.len as usize);
                drop(Box::from_raw(bytes));
            }
            key.len = 0;
        }
    }

    /// Keeps what a worker could not free yet until there are no readers either.
    pub fn leave(&self, rest: impl Iterator<Item = Overwritten>) {
        lock(&self.leftovers).extend(rest);
    }
}

fn chunk_layout() -> Layout {
    match Layout::array::<Slot>(CHUNK_ROWS) {
        Ok(layout) => layout,
        Err(_) => unreachable!("a chunk has a layout"),
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        for overwritten in lock(&self.leftovers).drain(..) {
            // SAFETY: with `self` all readers are gone.
            unsafe { free_version(overwritten.version) };
        }
        for chunk in &self.chunks {
            let chunk = chunk.load(Ordering::Acquire);
            if chunk.is_null() {
                continue;
            }
            for i in 0..CHUNK_ROWS {
                // SAFETY: with `self` everybody who had row ids is gone; each head is owned by its
                // slot.
                unsafe {
                    let slot = &*chunk.add(i);
                    let head = slot.head.load(Ordering::Acquire);
                    if let Some(head) = NonNull::new(head) {
                        free_version(head);
                    }
                    self.free_key(slot);
                }
            }
            // SAFETY: allocated with this layout in `create`.
            unsafe { dealloc(chunk.cast(), chunk_layout()) };
        }
    }
}

/// A version that is not in its row yet.
pub(crate) struct Draft(NonNull<Version>);

// SAFETY: a draft is owned like a box.
unsafe impl Send for Draft {}

impl Draft {
    pub fn row(spare: &mut Spare, seq: u64, layout: u32, cells: u32, body: &[u8]) -> Draft {
        Draft::new(spare, seq, layout, cells, false, body)
    }

    pub fn tombstone(spare: &mut Spare, seq: u64) -> Draft {
        Draft::new(spare, seq, 0, 0, true, &[])
    }

    fn new(
        spare: &mut Spare,
        seq: u64,
        layout: u32,
        cells: u32,
        tombstone: bool,
        body: &[u8],
    ) -> Draft {
        let len =
            u32::try_from(body.len()).unwrap_or_else(|_| panic!("a row of {} bytes", body.len()));
        let version = spare.take(version_size(len)).cast::<Version>();
        // SAFETY: the block is ours, aligned for a version, and the body has room behind the
        // header.
        unsafe {
            version.write(Version {
                seq,
                prev: ptr::null_mut(),
                len,
                layout,
                cells,
                tombstone: u32::from(tombstone),
            });
            ptr::copy_nonoverlapping(body.as_ptr(), version.as_ptr().add(1).cast(), body.len());
            Draft(version)
        }
    }

    pub fn seq(&self) -> u64 {
        self.version().seq()
    }

    pub fn bytes(&self) -> u64 {
        // SAFETY: the draft owns its version.
        version_bytes(unsafe { self.0.as_ref().len })
    }

    fn version(&self) -> VersionRef<'_> {
        // SAFETY: the draft owns its version.
        unsafe { VersionRef::new(self.0) }
    }

    /// The same row with its `Unchanged` values filled in from `base`; also how many found none
    /// there.
    pub fn resolve(&self, spare: &mut Spare, base: Option<VersionRef<'_>>) -> (Draft, u64) {
        let own = self.version();
        let base = base.filter(|base| !base.is_tombstone());
        let mut unresolved = 0;
        let mut cells = (0..own.cells() as usize).map(|i| match own.cell(i) {
            Cell::Unchanged => match base.filter(|base| i < base.cells() as usize) {
                Some(base) => base.cell(i),
                None => {
                    unresolved += 1;
                    Cell::Null
                }
            },
            cell => cell,
        });
        let mut body = Vec::new();
        write_body(&mut body, &mut cells);
        (
            Draft::row(spare, own.seq(), own.layout(), own.cells(), &body),
            unresolved,
        )
    }

    fn into_raw(self) -> *mut Version {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // SAFETY: the draft owns its version.
        unsafe { free_version(self.0) };
    }
}

/// A version that write `by` replaced. It belongs to the worker that installed `by`.
pub(crate) struct Overwritten {
    version: NonNull<Version>,
    by: u64,
}

// SAFETY: owned like a box by whoever may free it.
unsafe impl Send for Overwritten {}

impl Overwritten {
    pub fn by(&self) -> u64 {
        self.by
    }

    /// Fetches the version into the cache; freeing it will write there.
    pub fn prefetch(&self) {
        prefetch(self.version.as_ptr());
    }

    /// Gives its memory to `spare`; returns how many bytes that were.
    ///
    /// # Safety
    /// The horizon, acquired, is not below `by`.
    pub unsafe fn free(self, spare: &mut Spare) -> u64 {
        // SAFETY: points 2 and 3 of the essay: it is the caller's alone.
        unsafe {
            let len = self.version.as_ref().len;
            spare.give(self.version.cast(), version_size(len));
            version_bytes(len)
        }
    }
}

/// A version that someone is entitled to look at.
#[derive(Clone, Copy)]
pub(crate) struct VersionRef<'a> {
    version: NonNull<Version>,
    lifetime: PhantomData<&'a Version>,
}

// SAFETY: an installed version does not change.
unsafe impl Send for VersionRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for VersionRef<'_> {}

impl<'a> VersionRef<'a> {
    /// # Safety
    /// The version stays for `'a` and is not written to meanwhile.
    unsafe fn new(version: NonNull<Version>) -> VersionRef<'a> {
        VersionRef {
            version,
            lifetime: PhantomData,
        }
    }

    fn header(self) -> &'a Version {
        // SAFETY: as promised to `new`.
        unsafe { self.version.as_ref() }
    }

    pub fn seq(self) -> u64 {
        self.header().seq
    }

    pub fn layout(self) -> u32 {
        self.header().layout
    }

    pub fn cells(self) -> u32 {
        self.header().cells
    }

    pub fn is_tombstone(self) -> bool {
        self.header().tombstone != 0
    }

    pub fn cell(self, index: usize) -> Cell<'a> {
        let header = self.header();
        // SAFETY: the body of `len` bytes follows the header in the same allocation.
        let body: &'a [u8] = unsafe {
            std::slice::from_raw_parts(self.version.as_ptr().add(1).cast(), header.len as usize)
        };
        body_cell(body, header.cells, index)
    }
}
