//! The program's file, and where its sections are: some are not in memory.

use std::ffi::CStr;

/// A section header.
pub struct Section {
    /// In memory, from where the program is loaded.
    pub address: usize,
    /// In the file.
    pub offset: usize,
    pub length: usize,
    /// The number of another one that belongs to it.
    pub link: usize,
    name: usize,
}

/// All section headers of a file.
pub struct Sections {
    file: File,
    table: usize,
    count: usize,
    /// Where their names are in the file.
    names: usize,
}

impl Sections {
    const HEADER: usize = 64;

    pub fn of_program() -> Option<Self> {
        let file = File::open(c"/proc/self/exe")?;
        let mut head = [0; Self::HEADER];
        file.read(&mut head, 0)?;
        let half = |at: usize| {
            let two = head.get(at..)?.first_chunk()?;
            Some(usize::from(u16::from_le_bytes(*two)))
        };
        if half(58)? != Self::HEADER {
            return None;
        }
        let mut sections = Self {
            file,
            table: word(&head, 40)?,
            count: half(60)?,
            names: 0,
        };
        sections.names = sections.get(half(62)?)?.offset;
        Some(sections)
    }

    pub fn get(&self, nth: usize) -> Option<Section> {
        let mut header = [0; Self::HEADER];
        let at = self.table.checked_add(nth.checked_mul(Self::HEADER)?)?;
        self.file.read(&mut header, at)?;
        Some(Section {
            name: number(&header, 0)? as usize,
            address: word(&header, 16)?,
            offset: word(&header, 24)?,
            length: word(&header, 32)?,
            link: number(&header, 40)? as usize,
        })
    }

    /// The first one with one of these names.
    pub fn find(&self, names: &[&[u8]]) -> Option<Section> {
        let mut all = (0..self.count).filter_map(|nth| self.get(nth));
        let is_named = |section: &Section| {
            let mut name = [0; 32];
            let _ = self
                .file
                .read(&mut name, self.names.saturating_add(section.name));
            let name = CStr::from_bytes_until_nul(&name).map(CStr::to_bytes);
            name.is_ok_and(|name| names.contains(&name))
        };
        all.find(is_named)
    }

    /// What is in it. It stays in memory.
    pub fn map(&self, section: &Section) -> Option<&'static [u8]> {
        self.file.map(section.offset, section.length)
    }
}

pub fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}

pub fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let eight = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u64::from_le_bytes(*eight)).ok()
}

/// One that is read by system calls alone: the functions of libc are ours.
struct File(i64);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path is a C string.
        let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        (file >= 0).then_some(Self(file))
    }

    /// As much as there is, up to the end of the file.
    fn read(&self, bytes: &mut [u8], at: usize) -> Option<()> {
        let (start, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: there is room for so many.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.0, start, length, at) };
        (read > 0).then_some(())
    }

    /// A part of it, which stays in memory.
    fn map(&self, at: usize, length: usize) -> Option<&'static [u8]> {
        const PAGE: usize = 4096;
        let before = at % PAGE;
        let whole = length.checked_add(before)?;
        // SAFETY: new memory, which is never given back.
        unsafe {
            let (how, shared) = (libc::PROT_READ, libc::MAP_PRIVATE);
            let from = i64::try_from(at - before).ok()?;
            let start = libc::mmap(
                std::ptr::null_mut(),
                whole,
                how,
                shared,
                self.0 as i32,
                from,
            );
            if start == libc::MAP_FAILED {
                return None;
            }
            let first = start.cast::<u8>().add(before);
            Some(std::slice::from_raw_parts(first, length))
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}
