//! What end-to-end tests stand on: the `hindcast` binary and services as child processes, a private
//! Postgres, an HTTP client.
//!
//! ```no_run
//! use hindcast_tests::{Stage, requests::Script};
//!
//! let stage = Stage::new("shop", "CREATE TABLE t (k int)");
//! let recorder = stage.record_inside(&[], "examples/node/run.sh");
//! // … requests to stage.service_port …
//! recorder.interrupt().assert_code(0);
//! stage.replay_inside(&[]).assert_code(0);
//! ```
//!
//! Nothing here mocks anything, and nothing waits by the clock: [`wait_for`] polls a fact. Whatever
//! is started writes its output to a file in the stage's folder; a test that fails leaves that
//! folder behind and says where it is.
//!
//! Start reading at [`Stage`].
//!
//! The invariant: **what a test started has ended when the test has**, also when it panics. Every
//! process is the leader of a group of its own, and dropping its [`Process`] kills that group.

pub mod cgi;
pub mod exec;
pub mod http;
pub mod network;
pub mod process;
pub mod requests;
pub mod retro;
pub mod session;
pub mod stage;
pub mod standby;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub use process::{Finished, Process};
pub use stage::Stage;

/// How long anything may take that a test waits for. Generous, since the machine may be busy; a
/// failure that takes this long is a failure all the same.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Polls until `fact` yields something.
///
/// # Panics
/// After [`PATIENCE`], naming what it waited for.
pub fn wait_for<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "waited {} s in vain for {what}",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A file or folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate is in a folder of the workspace");
    root.join(path)
}

/// What a service needs that is in a folder of the repository.
pub fn install(script: &str, arguments: &[&str]) {
    let status = Command::new(repository(script)).args(arguments).status();
    assert!(status.expect("bash is there").success());
}

/// One of our own programs, the newest there is: the test script builds it optimised, a developer
/// perhaps not. HINDCAST_PROGRAMS names another folder to look in.
///
/// # Panics
/// If it was never built.
pub fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("HINDCAST_PROGRAMS") {
        return Path::new(&folder).join(name);
    }
    let test = std::env::current_exe().expect("the path of the running test");
    // target/PROFILE/deps/TEST
    let target = test
        .ancestors()
        .nth(3)
        .expect("a test runs from cargo's target folder");
    let built = |profile: &str| {
        let path = target.join(profile).join(name);
        let modified = path
            .metadata()
            .and_then(|metadata| metadata.modified())
            .ok()?;
        Some((modified, path))
    };
    match [built("debug"), built("release")]
        .into_iter()
        .flatten()
        .max()
    {
        Some((_, path)) => path,
        None => panic!(
            "{name} is not built: cargo build --release -p hindcast-cli -p hindcast-workloads"
        ),
    }
}
