//! What the kernel gives a program at its start.

use libc::c_char;

/// Behind the arguments: the environment, and behind that the auxiliary vector.
pub struct Vectors(*mut [u64; 2]);

/// Random bytes that the kernel has put there.
pub const RANDOM: usize = 16;

impl Vectors {
    /// # Safety
    /// These are the program's arguments, where the kernel has put them.
    pub unsafe fn of(arguments: *const *const c_char) -> Option<Self> {
        let mut at = arguments;
        // SAFETY: a null ends the arguments, and one the environment; a pair the vector.
        unsafe {
            for _ in 0..2 {
                while !(*at).is_null() {
                    at = at.add(1);
                }
                at = at.add(1);
            }
        }
        (!at.is_null()).then_some(Self(at.cast_mut().cast()))
    }

    pub fn entry(&self, kind: u64) -> Option<*mut [u64; 2]> {
        let mut at = self.0;
        loop {
            // SAFETY: a pair whose kind is 0 ends it.
            unsafe {
                match (*at)[0] {
                    0 => return None,
                    this if this == kind => return Some(at),
                    _ => at = at.add(1),
                }
            }
        }
    }

    pub fn value(&self, kind: u64) -> Option<usize> {
        // SAFETY: it is one of the vector.
        let value = self.entry(kind).map(|at| unsafe { (*at)[1] })?;
        usize::try_from(value).ok().filter(|&value| value != 0)
    }

    pub fn random(&self) -> Option<*mut u8> {
        Some(self.value(libc::AT_RANDOM)? as *mut u8)
    }

    /// The program's segments, which the kernel has mapped.
    pub fn segments(&self) -> &'static [Segment] {
        let (table, count) = (self.value(libc::AT_PHDR), self.value(libc::AT_PHNUM));
        match table.zip(count) {
            None => &[],
            // SAFETY: there are so many.
            Some((table, count)) => unsafe {
                std::slice::from_raw_parts(table as *const Segment, count)
            },
        }
    }

    /// How far the program is from where its file says.
    pub fn bias(&self) -> Option<usize> {
        let own = self
            .segments()
            .iter()
            .find(|one| one.kind == libc::PT_PHDR)?;
        Some(self.value(libc::AT_PHDR)?.wrapping_sub(own.address))
    }

    /// The same, if it is one of Go's.
    pub fn is_go(&self) -> Option<usize> {
        let bias = self.bias()?;
        let segments = self.segments().iter();
        let mut notes = segments.filter(|one| one.kind == libc::PT_NOTE);
        let is_go = notes.any(|one| {
            let start = bias.wrapping_add(one.address) as *const u8;
            // SAFETY: it is mapped.
            has_note_of_go(unsafe { std::slice::from_raw_parts(start, one.size) })
        });
        is_go.then_some(bias)
    }
}

/// Whether one of these notes is by Go's linker.
fn has_note_of_go(mut notes: &[u8]) -> bool {
    const NAME: &[u8] = b"Go\0\0";
    let length = |notes: &[u8], at: usize| {
        let four = notes.get(at..)?.first_chunk()?;
        // Each part is padded.
        (u32::from_le_bytes(*four) as usize).checked_next_multiple_of(4)
    };
    loop {
        let (Some(name), Some(rest)) = (length(notes, 0), length(notes, 4)) else {
            return false;
        };
        let Some(own) = notes.get(12..) else {
            return false;
        };
        if name == NAME.len() && own.starts_with(NAME) {
            return true;
        }
        let Some(next) = name.checked_add(rest).and_then(|length| own.get(length..)) else {
            return false;
        };
        notes = next;
    }
}

/// A program header.
#[repr(C)]
pub struct Segment {
    pub kind: u32,
    pub flags: u32,
    pub offset: usize,
    pub address: usize,
    physical: usize,
    pub size: usize,
    pub memory: usize,
    align: usize,
}
