//! The C code compiles without a warning.

use std::path::Path;
use std::process::Command;

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
        // Postgres' own headers have unused parameters.
        .arg("COPT=-Wall -Wextra -Wno-unused-parameter -Werror")
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    assert!(Path::new(&folder.path().join("hindcast.so")).is_file());
}
