//! The checker against real programs and against files that are none.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use hindcast_interpose::imports::{CheckError, Coverage, check};

fn compiled(folder: &Path, source: &str, arguments: &[&str]) -> PathBuf {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&file, source).expect("writable");
    let status = Command::new("gcc")
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .args(arguments)
        .status()
        .expect("a C compiler");
    assert!(status.success());
    program
}

#[test]
fn imports_are_annotated_by_hand_harmless_or_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(
        folder.path(),
        "#define _GNU_SOURCE\n#include <unistd.h>\n#include <string.h>\n#include <fcntl.h>\n\
         int main(int n, char **v) { return ftruncate(0, n) + strcmp(v[0], v[1]) + fcntl(n, F_GETFD); }\n",
        &["-O0", "-fno-builtin"],
    );
    let checked = check(&program, &[], &HashSet::new()).expect("a program");
    let of = |name: &str| {
        let import = checked.files[0]
            .imports
            .iter()
            .find(|import| import.name == name);
        import.map(|import| import.coverage.clone())
    };
    assert_eq!(
        of("ftruncate"),
        Some(Coverage::Annotated {
            interface: "files".to_owned()
        })
    );
    assert!(matches!(
        of("fcntl").or(of("fcntl64")),
        Some(Coverage::ByHand { .. })
    ));
    assert_eq!(of("strcmp"), Some(Coverage::Harmless));
    assert_eq!(checked.files.len(), 1, "libc itself is below the cut");
}

#[test]
fn a_function_that_no_header_knows_is_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(
        folder.path(),
        "extern int __libc_allocate_rtsig(int);\n\
         int main(void) { return __libc_allocate_rtsig(1); }\n",
        &[],
    );
    let checked = check(&program, &[], &HashSet::new()).expect("a program");
    assert!(
        checked.missing().contains_key("__libc_allocate_rtsig"),
        "{:?}",
        checked.files[0].imports
    );
    let own: HashSet<_> = ["__libc_allocate_rtsig".to_owned()].into();
    assert!(
        check(&program, &[], &own)
            .expect("a program")
            .missing()
            .is_empty(),
        "one's own interface counts"
    );
}

#[test]
fn a_program_of_the_system_is_looked_at_with_its_libraries() {
    let checked =
        check(Path::new("/usr/bin/env"), &[], &HashSet::new()).expect("a program of every system");
    assert!(checked.not_found.is_empty(), "{:?}", checked.not_found);
    assert!(
        checked
            .names(|coverage| matches!(
                coverage,
                Coverage::Annotated { .. } | Coverage::ByHand { .. }
            ))
            .len()
            > 3
    );
}

#[test]
fn sqlite_counts_when_it_is_chosen() {
    let shell = Path::new("/usr/bin/sqlite3");
    assert!(shell.exists(), "this test needs the package sqlite3");
    let sqlite = |chosen: &[&str]| {
        let checked = check(shell, chosen, &HashSet::new()).expect("a program");
        checked.files[0]
            .imports
            .iter()
            .filter(|import| import.name.starts_with("sqlite3_"))
            .count()
    };
    assert_eq!(sqlite(&[]), 0);
    assert!(sqlite(&["sqlite3"]) > 100);
}

#[test]
fn every_function_of_sqlite_that_its_shell_and_python_use_is_covered() {
    let shell = Path::new("/usr/bin/sqlite3");
    assert!(shell.exists(), "this test needs the package sqlite3");
    let checked = check(shell, &["sqlite3"], &HashSet::new()).expect("a program");
    let covered: HashSet<_> = checked.files[0]
        .imports
        .iter()
        .map(|import| import.name.as_str())
        .collect();
    use object::{Object, ObjectSymbol};
    let data = std::fs::read(shell).expect("readable");
    let program = object::File::parse(&*data).expect("ELF");
    let missing: Vec<_> = program
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| {
            symbol
                .name()
                .ok()
                .filter(|name| name.starts_with("sqlite3_"))
                .map(str::to_owned)
        })
        .filter(|name| !covered.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_is_no_program_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").expect("writable");
    assert!(matches!(
        check(&script, &[], &HashSet::new()),
        Err(CheckError::NotElf { .. })
    ));
    assert!(matches!(
        check(&folder.path().join("nothing"), &[], &HashSet::new()),
        Err(CheckError::Read { .. })
    ));
    let program = compiled(
        folder.path(),
        "int main(void) { return 0; }\n",
        &["-static"],
    );
    assert!(matches!(
        check(&program, &[], &HashSet::new()),
        Err(CheckError::Static { .. })
    ));
}
