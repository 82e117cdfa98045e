//! What a program imports, and what of that the interface covers.
//!
//! Looks at files only and runs nothing: the program, the libraries it needs and those that they
//! need. Functions of libc that no annotation covers are not lost: they run in replay space like
//! the program itself, and the system calls that they make are caught by the trap and recorded one
//! by one. So *missing* means slower and a larger log, and it is where to look first when a replay
//! diverges. Libraries opened at run time (`dlopen`) are not seen; `--check` on the plugin itself
//! shows them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, elf};

/// Every symbol that the built-in headers know: name, interface, what is done about it. Generated
/// from the headers.
const SYMBOLS: &str = include_str!("../symbols.txt");

/// What the interface does about an imported function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coverage {
    /// Recorded and replayed by a generated stub.
    Annotated { interface: String },
    /// The same by code that somebody wrote.
    ByHand { interface: String },
    /// Gives the same in both runs by itself.
    Harmless,
    /// Runs in replay space; the system calls that it makes are caught one by one. A function of a
    /// chosen interface's library (`sqlite3session_create`) runs there without the library's state
    /// in replay, and will diverge if it needs it.
    Missing,
}

/// An imported function or object of libc or of an annotated library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub name: String,
    /// The library that it comes from, where the file says so: `libc.so.6`.
    pub library: Option<String>,
    pub coverage: Coverage,
}

/// One file: the program or a library it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imports {
    pub path: PathBuf,
    /// By name. Imports from libraries that run in replay space themselves are not here.
    pub imports: Vec<Import>,
    /// How many come from libraries that run in replay space as the program does.
    pub from_libraries: usize,
}

/// What a program and its libraries import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The program first.
    pub files: Vec<Imports>,
    /// Libraries that are needed and were not found, and who needs them.
    pub not_found: Vec<(String, PathBuf)>,
}

impl Checked {
    /// Names with that coverage over all files, each once.
    pub fn names(&self, which: impl Fn(&Coverage) -> bool) -> BTreeSet<&str> {
        let all = self.files.iter().flat_map(|file| &file.imports);
        all.filter(|import| which(&import.coverage))
            .map(|import| import.name.as_str())
            .collect()
    }

    /// Missing functions with the files that import them.
    pub fn missing(&self) -> BTreeMap<&str, Vec<&Path>> {
        let mut missing: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
        for file in &self.files {
            for import in file
                .imports
                .iter()
                .filter(|import| import.coverage == Coverage::Missing)
            {
                missing.entry(&import.name).or_default().push(&file.path);
            }
        }
        missing
    }
}

/// Why a program cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is no 64-bit ELF program", path.display())]
    NotElf { path: PathBuf },
    #[error("{} is linked statically: there is no libc to interpose", path.display())]
    Static { path: PathBuf },
    #[error("{} is damaged: {source}", path.display())]
    Damaged {
        path: PathBuf,
        source: object::Error,
    },
}

/// Lists what `program` and its libraries import. `chosen` are the higher interfaces that would be
/// chosen (`sqlite3`), `own` further functions that a user's own interface annotates.
pub fn check(
    program: &Path,
    chosen: &[&str],
    own: &HashSet<String>,
) -> Result<Checked, CheckError> {
    let mut checked = Checked {
        files: Vec::new(),
        not_found: Vec::new(),
    };
    let mut search = Search::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![program.to_path_buf()];
    let mut is_program = true;
    while let Some(path) = waiting.pop() {
        let file = read(&path)?;
        if is_program && file.needed.is_empty() && !file.has_interpreter {
            return Err(CheckError::Static { path });
        }
        is_program = false;
        let mut needed = Vec::new();
        for name in &file.needed {
            if is_libc(name) || !seen.insert(name.clone()) {
                continue;
            }
            match search.find(name, &file.search, &path) {
                Some(found) => needed.push(found),
                None => checked.not_found.push((name.clone(), path.clone())),
            }
        }
        waiting.extend(needed.into_iter().rev());
        checked.files.push(classify(path, file, chosen, own));
    }
    Ok(checked)
}

fn classify(path: PathBuf, file: File, chosen: &[&str], own: &HashSet<String>) -> Imports {
    let mut imports = Vec::new();
    let mut from_libraries = 0;
    for symbol in file.imports {
        let of_libc = symbol.library.as_deref().is_some_and(is_libc);
        let known = KNOWN
            .get(symbol.name.as_str())
            .filter(|(interface, _)| of_libc || chosen.contains(interface));
        let coverage = match known {
            _ if own.contains(&symbol.name) => Coverage::Annotated {
                interface: "your own".to_owned(),
            },
            Some((interface, "annotated")) => Coverage::Annotated {
                interface: (*interface).to_owned(),
            },
            Some((interface, "by_hand")) => Coverage::ByHand {
                interface: (*interface).to_owned(),
            },
            Some(_) => Coverage::Harmless,
            // An object is memory that libc and the program share in both runs.
            None if of_libc && symbol.is_data => Coverage::Harmless,
            None if of_libc => Coverage::Missing,
            // Of a library that is below the cut, and not itself at it.
            None if chosen
                .iter()
                .any(|interface| symbol.name.starts_with(interface)) =>
            {
                Coverage::Missing
            }
            None => {
                from_libraries += 1;
                continue;
            }
        };
        imports.push(Import {
            name: symbol.name,
            library: symbol.library,
            coverage,
        });
    }
    imports.sort_by(|a, b| a.name.cmp(&b.name));
    Imports {
        path,
        imports,
        from_libraries,
    }
}

static KNOWN: LazyLock<HashMap<&'static str, (&'static str, &'static str)>> = LazyLock::new(|| {
    let entry = |line: &'static str| {
        let mut words = line.split(' ');
        Some((words.next()?, (words.next()?, words.next()?)))
    };
    SYMBOLS.lines().filter_map(entry).collect()
});

/// glibc's own libraries: below the cut.
fn is_libc(name: &str) -> bool {
    const PARTS: [&str; 9] = [
        "libc.so.",
        "libm.so.",
        "libpthread.so.",
        "libdl.so.",
        "librt.so.",
        "libresolv.so.",
        "libutil.so.",
        "libanl.so.",
        "ld-linux",
    ];
    PARTS.iter().any(|part| name.starts_with(part))
}

/// What of an ELF file matters here.
struct File {
    needed: Vec<String>,
    has_interpreter: bool,
    /// `DT_RPATH` or `DT_RUNPATH`.
    search: Vec<String>,
    imports: Vec<Symbol>,
}

struct Symbol {
    name: String,
    library: Option<String>,
    is_data: bool,
}

fn read(path: &Path) -> Result<File, CheckError> {
    let data = std::fs::read(path).map_err(|source| CheckError::Read {
        path: path.into(),
        source,
    })?;
    let elf = ElfFile64::<Endianness>::parse(&*data)
        .map_err(|_| CheckError::NotElf { path: path.into() })?;
    contents(&elf, &data).map_err(|source| CheckError::Damaged {
        path: path.into(),
        source,
    })
}

fn contents(elf: &ElfFile64<Endianness>, data: &[u8]) -> Result<File, object::Error> {
    let endian = elf.endian();
    let sections = elf.elf_section_table();
    let mut file = File {
        needed: Vec::new(),
        has_interpreter: false,
        search: Vec::new(),
        imports: Vec::new(),
    };
    for segment in elf.elf_header().program_headers(endian, data)? {
        file.has_interpreter |= segment.p_type(endian) == elf::PT_INTERP;
    }
    if let Some((entries, link)) = sections.dynamic(endian, data)? {
        let strings = sections
            .section(link)?
            .strings(endian, data)?
            .unwrap_or_default();
        for entry in entries {
            let text = || -> Result<String, object::Error> {
                Ok(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned())
            };
            match entry.tag32(endian) {
                Some(elf::DT_NEEDED) => file.needed.push(text()?),
                Some(elf::DT_RPATH | elf::DT_RUNPATH) => {
                    file.search.extend(text()?.split(':').map(str::to_owned))
                }
                _ => {}
            }
        }
    }
    let symbols = elf.elf_dynamic_symbol_table();
    let versions = sections.versions(endian, data)?;
    for (index, symbol) in symbols.enumerate() {
        let name = symbol.name(endian, symbols.strings())?;
        if !symbol.is_undefined(endian) || name.is_empty() {
            continue;
        }
        let library = match &versions {
            Some(versions) => {
                let version = versions.version(versions.version_index(endian, index))?;
                version
                    .and_then(|version| version.file())
                    .map(|file| String::from_utf8_lossy(file).into_owned())
            }
            None => None,
        };
        file.imports.push(Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            library,
            is_data: matches!(symbol.st_type(), elf::STT_OBJECT | elf::STT_TLS),
        });
    }
    Ok(file)
}

/// Where the loader looks for libraries.
struct Search {
    folders: Vec<PathBuf>,
}

impl Search {
    fn new() -> Self {
        let mut folders: Vec<PathBuf> = Vec::new();
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            folders.extend(
                std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty()),
            );
        }
        configured(Path::new("/etc/ld.so.conf"), &mut folders, 0);
        for folder in [
            "/lib/x86_64-linux-gnu",
            "/usr/lib/x86_64-linux-gnu",
            "/lib64",
            "/usr/lib64",
            "/lib",
            "/usr/lib",
        ] {
            folders.push(folder.into());
        }
        Search { folders }
    }

    fn find(&mut self, name: &str, own: &[String], by: &Path) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(name.into());
        }
        let origin = by
            .parent()
            .unwrap_or(Path::new("/"))
            .to_string_lossy()
            .into_owned();
        let own = own.iter().map(|folder| {
            PathBuf::from(
                folder
                    .replace("${ORIGIN}", &origin)
                    .replace("$ORIGIN", &origin),
            )
        });
        own.chain(self.folders.iter().cloned())
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    }
}

/// The folders of `ld.so.conf` and of what it includes.
fn configured(file: &Path, folders: &mut Vec<PathBuf>, depth: usize) {
    let Ok(text) = std::fs::read_to_string(file) else {
        return;
    };
    for line in text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty())
    {
        match line.strip_prefix("include") {
            Some(pattern) if depth < 4 => {
                let pattern = Path::new(pattern.trim());
                let (Some(folder), Some(ending)) = (pattern.parent(), pattern.extension()) else {
                    continue;
                };
                let Ok(entries) = std::fs::read_dir(folder) else {
                    continue;
                };
                let mut included: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
                included.sort();
                for path in included
                    .iter()
                    .filter(|path| path.extension() == Some(ending))
                {
                    configured(path, folders, depth + 1);
                }
            }
            Some(_) => {}
            None => folders.push(line.into()),
        }
    }
}
