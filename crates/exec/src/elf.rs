//! What an executable or a library says about itself, as far as recording it depends on that.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, NoteIterator, ProgramHeader};
use object::{LittleEndian, Object, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

/// What kind of machine code a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    X86_64,
    /// Named as people name it.
    Other(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    pub architecture: Architecture,
    /// What loads it; none in a static executable and in a library.
    pub interpreter: Option<PathBuf>,
    /// Whether it has a dynamic section, which only a static executable at a fixed address lacks.
    pub dynamic: bool,
    /// The libraries that it names itself.
    pub needed: Vec<String>,
    /// In hexadecimal.
    pub build_id: Option<String>,
    /// Made by the Go toolchain.
    pub go: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not an ELF file", .0.display())]
    NotElf(PathBuf),
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
}

impl Elf {
    pub fn read(path: &Path) -> Result<Elf, ElfError> {
        let file = File::open(path).map_err(|source| ElfError::Read {
            path: path.into(),
            source,
        })?;
        let cache = ReadCache::new(file);
        Elf::parse(&cache).map_err(|error| match error {
            Problem::NotElf => ElfError::NotElf(path.into()),
            Problem::Damaged(what) => ElfError::Damaged {
                path: path.into(),
                what,
            },
        })
    }

    fn of(architecture: Architecture) -> Elf {
        Elf {
            architecture,
            interpreter: None,
            dynamic: false,
            needed: Vec::new(),
            build_id: None,
            go: false,
        }
    }

    fn parse<'a>(data: impl ReadRef<'a>) -> Result<Elf, Problem> {
        let start = data.read_bytes_at(0, 20).map_err(|()| Problem::NotElf)?;
        if !start.starts_with(&elf::ELFMAG) {
            return Err(Problem::NotElf);
        }
        // Other classes and byte orders are laid out in another way; their machine is at the same
        // place.
        let machine = match start[5] {
            elf::ELFDATA2MSB => u16::from_be_bytes([start[18], start[19]]),
            _ => u16::from_le_bytes([start[18], start[19]]),
        };
        if (start[4], start[5], machine) != (elf::ELFCLASS64, elf::ELFDATA2LSB, elf::EM_X86_64) {
            return Ok(Elf::of(Architecture::Other(architecture(machine))));
        }
        let header = FileHeader64::<LittleEndian>::parse(data)?;
        let order = header.endian()?;
        let segments = header.program_headers(order, data)?;
        let sections = header.sections(order, data)?;

        let mut made = Elf::of(Architecture::X86_64);
        made.go = sections.iter().any(|section| {
            matches!(
                sections.section_name(order, section),
                Ok(b".go.buildinfo" | b".note.go.buildid")
            )
        });
        for segment in segments {
            if let Some(path) = segment.interpreter(order, data)? {
                made.interpreter = Some(PathBuf::from(
                    <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path),
                ));
            }
            if let Some(notes) = segment.notes(order, data)? {
                made.notes(order, notes);
            }
            if let Some(entries) = segment.dynamic(order, data)? {
                made.dynamic = true;
                let value = |tag| {
                    entries
                        .iter()
                        .find(|entry| entry.tag32(order) == Some(tag))
                        .map(|entry| entry.d_val(order))
                };
                let (Some(table), Some(size)) = (value(elf::DT_STRTAB), value(elf::DT_STRSZ))
                else {
                    continue;
                };
                let Some(strings) = segments.iter().find_map(|segment| {
                    segment.data_range(order, data, table, size).ok().flatten()
                }) else {
                    return Err(Problem::Damaged(
                        "its names of libraries are nowhere".into(),
                    ));
                };
                for entry in entries
                    .iter()
                    .filter(|entry| entry.tag32(order) == Some(elf::DT_NEEDED))
                {
                    let name = strings
                        .get(entry.d_val(order) as usize..)
                        .and_then(|rest| rest.split(|byte| *byte == 0).next());
                    made.needed
                        .extend(name.map(|name| String::from_utf8_lossy(name).into_owned()));
                }
            }
        }
        Ok(made)
    }

    fn notes(
        &mut self,
        order: LittleEndian,
        mut notes: NoteIterator<'_, FileHeader64<LittleEndian>>,
    ) {
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"Go" {
                self.go = true;
            } else if note.name() == elf::ELF_NOTE_GNU && note.n_type(order) == elf::NT_GNU_BUILD_ID
            {
                self.build_id = Some(
                    note.desc()
                        .iter()
                        .map(|byte| format!("{byte:02x}"))
                        .collect(),
                );
            }
        }
    }
}

enum Problem {
    NotElf,
    Damaged(String),
}

impl From<object::Error> for Problem {
    fn from(error: object::Error) -> Self {
        Problem::Damaged(error.to_string())
    }
}

fn architecture(machine: u16) -> &'static str {
    match machine {
        elf::EM_386 => "32-bit x86",
        elf::EM_AARCH64 => "64-bit ARM",
        elf::EM_ARM => "32-bit ARM",
        elf::EM_RISCV => "RISC-V",
        elf::EM_PPC64 => "POWER",
        elf::EM_S390 => "IBM Z",
        // The x32 convention: 32-bit pointers on the 64-bit machine.
        elf::EM_X86_64 => "x32",
        _ => "another machine",
    }
}

/// What identifies the content of a file: its build id where the linker left one, else a hash of
/// all of it.
pub fn identity(path: &Path) -> Result<String, ElfError> {
    if let Ok(Elf {
        build_id: Some(id), ..
    }) = Elf::read(path)
    {
        return Ok(format!("build-id {id}"));
    }
    let unreadable = |source| ElfError::Read {
        path: path.into(),
        source,
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match io::Read::read(&mut file, &mut piece).map_err(unreadable)? {
            0 => return Ok(format!("xxh3 {:032x}", hash.digest128())),
            bytes => hash.update(&piece[..bytes]),
        }
    }
}

/// The function that `offset` of a file's image lies in, as far as its symbols tell.
pub fn function_at(path: &Path, offset: u64) -> Option<String> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::read::elf::ElfFile64::<LittleEndian, _>::parse(&cache).ok()?;
    // Offsets are counted from the first segment, which position-independent files have at 0.
    let base = file.segments().map(|segment| segment.address()).min()?;
    let address = base.checked_add(offset)?;
    let function = file
        .symbols()
        .chain(file.dynamic_symbols())
        .find(|symbol| {
            symbol.kind() == SymbolKind::Text
                && (symbol.address()..symbol.address() + symbol.size()).contains(&address)
        })?;
    function.name().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_says_what_it_needs() {
        let own = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own.architecture, Architecture::X86_64);
        assert!(own.dynamic && !own.go);
        assert_eq!(
            own.interpreter.as_deref(),
            Some(Path::new("/lib64/ld-linux-x86-64.so.2"))
        );
        assert!(
            own.needed.iter().any(|name| name == "libc.so.6"),
            "{:?}",
            own.needed
        );
    }

    #[test]
    fn another_machine_is_named_and_anything_else_is_no_executable() {
        let mut start = [0; 64];
        start[..6].copy_from_slice(b"\x7fELF\x02\x01");
        start[18..20].copy_from_slice(&elf::EM_AARCH64.to_le_bytes());
        let parsed = Elf::parse(&start[..]).ok().unwrap();
        assert_eq!(parsed.architecture, Architecture::Other("64-bit ARM"));
        assert!(matches!(
            Elf::parse(&b"#!/bin/sh\nexit 0 # and more\n"[..]),
            Err(Problem::NotElf)
        ));
        // A header of this machine with nothing behind it.
        start[18..20].copy_from_slice(&elf::EM_X86_64.to_le_bytes());
        start[32] = 200;
        start[56] = 9;
        assert!(matches!(Elf::parse(&start[..]), Err(Problem::Damaged(_))));
    }

    #[test]
    fn two_files_with_other_bytes_are_not_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        std::fs::write(&one, "a library, so to say").unwrap();
        std::fs::write(&two, "another").unwrap();
        assert_ne!(identity(&one).unwrap(), identity(&two).unwrap());
        assert!(identity(&one).unwrap().starts_with("xxh3 "));
    }
}
