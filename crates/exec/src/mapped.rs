//! A structure at the beginning of a file that other processes have mapped as well.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;

use hindcast_execlog::{Board, LogHeader, ProcessHeader};
use memmap2::{MmapOptions, MmapRaw};

/// What may lie in a file that others write to.
///
/// # Safety
///
/// Every bit pattern is valid. What changes is atomic, or read only once it is complete.
pub unsafe trait Shared {}

// SAFETY: `repr(C)` structs of numbers, of which those that change are atomic.
unsafe impl Shared for Board {}
// SAFETY: as above.
unsafe impl Shared for LogHeader {}
// SAFETY: as above.
unsafe impl Shared for ProcessHeader {}

/// Its file is not made shorter while this lives.
pub struct Mapped<T> {
    pages: MmapRaw,
    of: PhantomData<T>,
}

impl<T: Shared> Mapped<T> {
    /// To be read. `None`: the file is not that long yet.
    pub fn to_read(file: &File) -> io::Result<Option<Self>> {
        Self::map(file, |options| options.map_raw_read_only(file))
    }

    /// To be read and written. `None`: the file is not that long yet.
    pub fn to_write(file: &File) -> io::Result<Option<Self>> {
        Self::map(file, |options| options.map_raw(file))
    }

    fn map(
        file: &File,
        map: impl FnOnce(&MmapOptions) -> io::Result<MmapRaw>,
    ) -> io::Result<Option<Self>> {
        if file.metadata()?.len() < size_of::<T>() as u64 {
            return Ok(None);
        }
        let pages = map(MmapOptions::new().len(size_of::<T>()))?;
        let of = PhantomData;
        Ok(Some(Mapped { pages, of }))
    }

    /// The bytes as they are now.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives; others may write meanwhile, in whole numbers.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr(), size_of::<T>()) }
    }
}

impl<T: Shared> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped for as long as `self` lives, from the beginning of a page; see `Shared`.
        unsafe { &*self.pages.as_ptr().cast::<T>() }
    }
}
