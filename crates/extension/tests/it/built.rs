//! The C code compiles without a warning, and what is in the way of installing it is said.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hindcast_extension::InstallError;

use crate::server::installed;

#[test]
fn the_source_has_no_warnings() {
    let folder = hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-c-").unwrap();
    hindcast_private::folder(folder.path().join("src")).unwrap();
    for (name, content) in hindcast_extension::FILES {
        hindcast_private::write(folder.path().join(name), content).unwrap();
    }
    let pg_config = installed().program("pg_config");
    let made = Command::new("make")
        .args(["--silent", "with_llvm=no", "-C"])
        .arg(folder.path())
        .arg(format!("PG_CONFIG={}", pg_config.display()))
        // Postgres' own headers have unused parameters, and those of version 13 a variable that
        // may be clobbered.
        .arg("COPT=-Wall -Wextra -Wno-unused-parameter -Wno-clobbered -Werror")
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    assert!(Path::new(&folder.path().join("hindcast.so")).is_file());
}

/// A `pg_config` that answers one question differently.
fn pg_config_that_says(folder: &Path, question: &str, answer: &Path) -> PathBuf {
    let path = folder.join("pg_config");
    let text = format!(
        "#!/bin/sh\ncase $1 in {question}) echo {};; *) exec {} \"$@\";; esac\n",
        answer.display(),
        installed().program("pg_config").display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn what_cannot_be_copied_or_built_is_said_with_what_make_said() {
    let folder = tempfile::tempdir().unwrap();
    // Where not even root can make a file.
    let closed = pg_config_that_says(folder.path(), "--pkglibdir", Path::new("/proc/closed"));
    let refused = hindcast_extension::install(&closed).unwrap_err();
    assert!(matches!(&refused, InstallError::Copy { .. }), "{refused}");
    assert!(refused.to_string().contains("/proc/closed"), "{refused}");
    assert!(refused.hint().contains("sudo hindcast extension install"));

    let headers = folder.path().join("none");
    let wrong = pg_config_that_says(folder.path(), "--pkgincludedir", &headers);
    let refused = hindcast_extension::install(&wrong).unwrap_err();
    assert!(matches!(&refused, InstallError::Build { .. }), "{refused}");
    assert!(refused.to_string().contains("postgres.h"), "{refused}");
}
