//! `scripts/audit` against advisories made up for the purpose.

use std::process::Command;

use hindcast_tests::repository;

/// Runs the audit with one advisory about the crate `bytes`, of which we have some version 1.x.
fn audit(versions: &str) -> (Option<i32>, String) {
    let advisories = tempfile::tempdir().expect("a temporary folder can be made");
    let folder = advisories.path().join("crates/bytes");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    let text = format!(
        "```toml\n[advisory]\nid = \"RUSTSEC-0000-0001\"\npackage = \"bytes\"\n\n[versions]\n{versions}\n```\n\n# Made up\n"
    );
    std::fs::write(folder.join("RUSTSEC-0000-0001.md"), text).expect("the folder is ours");
    let output = Command::new(repository("scripts/audit"))
        .env("HINDCAST_ADVISORIES", advisories.path())
        .output()
        .expect("the audit is a Python script");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), text)
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
