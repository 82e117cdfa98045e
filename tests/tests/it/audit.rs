//! `scripts/audit` against advisories made up for the purpose.

use std::path::Path;
use std::process::Command;

use hindcast_tests::repository;

const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// Runs the audit of vulnerabilities with `from` in place of the database's address.
fn audited(from: &Path, databases: &Path) -> (Option<i32>, String) {
    let output = Command::new(repository("scripts/audit"))
        .arg("advisories")
        .env("HINDCAST_ADVISORIES", databases)
        .env("GIT_CONFIG_COUNT", "1")
        .env(
            "GIT_CONFIG_KEY_0",
            format!("url.{}.insteadOf", from.display()),
        )
        .env("GIT_CONFIG_VALUE_0", DATABASE)
        .output()
        .expect("the audit is a script");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), text)
}

/// Runs the audit with one advisory about the crate `bytes`, of which we have some version 1.x.
fn audit(versions: &str) -> (Option<i32>, String) {
    let made_up = tempfile::tempdir().expect("a temporary folder can be made");
    let source = made_up.path().join("source");
    let folder = source.join("crates/bytes");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    let text = format!(
        "```toml\n[advisory]\nid = \"RUSTSEC-0000-0001\"\npackage = \"bytes\"\ndate = \"2020-01-01\"\n\n[versions]\n{versions}\n```\n\n# Made up\n\nFor a test.\n"
    );
    std::fs::write(folder.join("RUSTSEC-0000-0001.md"), text).expect("the folder is ours");
    for arguments in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "--all"],
        &[
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "commit",
            "--quiet",
            "--message=a",
        ],
    ] {
        let git = Command::new("git")
            .arg("-C")
            .arg(&source)
            .args(arguments)
            .status();
        assert!(git.expect("there is git").success(), "{arguments:?}");
    }
    audited(&source, &made_up.path().join("databases"))
}

#[test]
fn a_vulnerable_version_fails_the_audit_by_name() {
    for versions in [
        "patched = []",
        "patched = [\">= 99.0.0\"]",
        "patched = [\"^0.9\", \">= 1.999.0, < 2.0.0\"]",
        "patched = [\"~1.999\"]",
        "unaffected = [\"< 1.0.0\"]",
    ] {
        let (code, text) = audit(versions);
        assert_eq!(code, Some(1), "{versions}\n{text}");
        assert!(
            text.contains("bytes 1.") && text.contains("RUSTSEC-0000-0001"),
            "{versions}\n{text}"
        );
    }
}

#[test]
fn a_patched_or_unaffected_version_passes_the_audit() {
    for versions in [
        "patched = [\">= 1.0.0\"]",
        "patched = [\"^1.0\"]",
        "unaffected = [\"> 0.5.0, < 2\"]",
    ] {
        let (code, text) = audit(versions);
        assert_eq!(code, Some(0), "{versions}\n{text}");
    }
}

#[test]
fn a_database_out_of_reach_is_said_and_fails_nothing() {
    let nowhere = tempfile::tempdir().expect("a temporary folder can be made");
    let (code, text) = audited(
        &nowhere.path().join("none"),
        &nowhere.path().join("databases"),
    );
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("vulnerabilities were NOT checked"), "{text}");
}
