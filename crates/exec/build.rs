//! Builds the library that is loaded into recorded processes, and puts it where
//! [`runtime`](src/runtime.rs) embeds it.
//!
//! It is a `cdylib` that exports `malloc` and a few hundred other names of libc, so it can be no
//! dependency: it is built by a `cargo` of its own, in a target folder of its own (the outer one is
//! locked). `HINDCAST_RUNTIME` names one that was built beforehand.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Which functions have which number: the same table as the runtime's, written by `hindcast-stubs`.
const TABLE: &str = "../runtime/src/functions.rs";

fn main() {
    println!("cargo:rerun-if-env-changed=HINDCAST_RUNTIME");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    table(&out);
    let library = match std::env::var_os("HINDCAST_RUNTIME") {
        Some(given) => PathBuf::from(given),
        None => build(&out),
    };
    println!("cargo:rerun-if-changed={}", library.display());
    let embedded = out.join("runtime.so");
    if let Err(error) = std::fs::copy(&library, &embedded) {
        panic!(
            "{} cannot be copied to {}: {error}",
            library.display(),
            embedded.display()
        );
    }
}

/// Takes the names and their hash over, so that a recording can be shown and one with another table
/// refused.
fn table(out: &Path) {
    println!("cargo:rerun-if-changed={TABLE}");
    let text = match std::fs::read_to_string(TABLE) {
        Ok(text) => text,
        Err(error) => panic!("{TABLE} cannot be read: {error}"),
    };
    let part = |begin: &str, end: &str| match text
        .split_once(begin)
        .and_then(|(_, rest)| rest.split_once(end))
    {
        Some((part, _)) => part.trim().to_owned(),
        None => panic!("{TABLE} has no {begin:?}"),
    };
    let names = part("pub const NAMES: &[&str] =", ";");
    let hash = part("pub const TABLE_HASH: u64 =", ";");
    let made = format!(
        "static FUNCTION_NAMES: &[&str] = {names};\n/// Identifies the table of functions of the embedded runtime.\npub const FUNCTION_TABLE: u64 = {hash};\n"
    );
    if let Err(error) = std::fs::write(out.join("functions.rs"), made) {
        panic!("the table of functions cannot be written: {error}");
    }
}

fn build(out: &Path) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for part in ["runtime", "execlog", "order"] {
        println!(
            "cargo:rerun-if-changed={}",
            workspace.join("crates").join(part).display()
        );
    }
    // target/PROFILE/build/CRATE/out: one folder for all profiles, since the runtime is always
    // optimized.
    let target = out.ancestors().nth(4).unwrap_or(out).join("runtime");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "hindcast-runtime",
            "--target-dir",
        ])
        .arg(&target);
    command.current_dir(&workspace);
    // What the outer cargo told this script about itself is not for the inner one: wrappers such as
    // clippy's, flags, the target folder, features.
    for (name, _) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let inherited = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_PROXY"].contains(&text);
        let outer = text.starts_with("CARGO_")
            || [
                "RUSTC_WRAPPER",
                "RUSTC_WORKSPACE_WRAPPER",
                "RUSTFLAGS",
                "TARGET",
                "HOST",
                "PROFILE",
            ]
            .contains(&text);
        if outer && !inherited {
            command.env_remove(&name);
        }
    }
    match command.status() {
        Ok(status) if status.success() => target.join("release/libhindcast_runtime.so"),
        Ok(status) => panic!("the runtime was not built: cargo ended with {status}"),
        Err(error) => panic!("the runtime was not built: cargo cannot be started: {error}"),
    }
}
