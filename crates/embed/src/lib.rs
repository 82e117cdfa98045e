//! Builds a library that is loaded into programs, for the build script of the crate that embeds it.
//!
//! Such a library is a `cdylib` that exports names of libc, so it can be no dependency: it is built
//! by a `cargo` of its own, in a target folder of its own (the outer one is locked).
//!
//! **Where to start reading**: [`Library::embed`].
//!
//! **What this crate does not do**: it is part of no product; only build scripts use it.
//!
//! **The invariant to keep**: what is embedded is built from this tree, or named by the user.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is embedded.
#[derive(Clone, Copy, Debug)]
pub struct Library<'a> {
    /// Its crate, a folder of `crates`.
    pub name: &'a str,
    /// The crates that it is made of besides.
    pub uses: &'a [&'a str],
    /// Names one that was built beforehand.
    pub variable: &'a str,
}

impl Library<'_> {
    /// Puts the library into `OUT_DIR` as `NAME.so`; panics if that cannot be done, as build
    /// scripts do.
    pub fn embed(self) {
        println!("cargo:rerun-if-env-changed={}", self.variable);
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let library = match std::env::var_os(self.variable) {
            Some(given) => {
                let given = PathBuf::from(given);
                println!("cargo:rerun-if-changed={}", given.display());
                given
            }
            // Not if that changes: it is newer than the script that makes it, and everything would
            // be built once more.
            None => self.build(&out),
        };
        let embedded = out.join(self.name).with_extension("so");
        if let Err(error) = std::fs::copy(&library, &embedded) {
            let (from, to) = (library.display(), embedded.display());
            panic!("{from} cannot be copied to {to}: {error}");
        }
    }

    fn build(self, out: &Path) -> PathBuf {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for part in self.uses.iter().chain([&self.name]) {
            let folder = workspace.join("crates").join(part);
            println!("cargo:rerun-if-changed={}", folder.display());
        }
        // target/PROFILE/build/CRATE/out: one folder for all profiles, since the library is always
        // optimized, and for all libraries.
        let target = out.ancestors().nth(4).unwrap_or(out).join("runtime");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let package = format!("hindcast-{}", self.name);
        let mut command = Command::new(cargo);
        command
            .args(["build", "--release", "--locked", "--package", &package])
            .arg("--target-dir")
            .arg(&target);
        command.current_dir(&workspace);
        without_the_outer_cargo(&mut command);
        match command.status() {
            Ok(status) if status.success() => {
                target.join(format!("release/libhindcast_{}.so", self.name))
            }
            Ok(status) => panic!("{package} was not built: cargo ended with {status}"),
            Err(error) => panic!("{package} was not built: cargo cannot be started: {error}"),
        }
    }
}

/// What the outer cargo told the script about itself is not for the inner one: wrappers such as
/// clippy's, flags, the target folder, features.
fn without_the_outer_cargo(command: &mut Command) {
    const INHERITED: [&str; 3] = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_PROXY"];
    const OUTER: [&str; 6] = [
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
        "TARGET",
        "HOST",
        "PROFILE",
    ];
    for (name, _) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let outer = text.starts_with("CARGO_") || OUTER.contains(&text);
        if outer && !INHERITED.contains(&text) {
            command.env_remove(&name);
        }
    }
}
