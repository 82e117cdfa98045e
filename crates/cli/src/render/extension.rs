//! What `hindcast extension` prints.

use hindcast_extension::{Finding, Installed, VERSION};
use serde_json::json;

pub fn installed(installed: &Installed) -> String {
    format!(
        "Installed: hindcast {VERSION} for Postgres {}, {}\n\
         Next, in postgresql.conf, beside what is there; then restart the server:\n  \
         shared_preload_libraries = 'hindcast'\n\
         and in the database from which records are read, as a superuser:\n  \
         CREATE EXTENSION hindcast;\n",
        installed.major,
        installed.library.display()
    )
}

/// A line for each finding, and a second one with what to do about it.
pub fn findings(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        text += &format!("{:10} {}\n", finding.subject, finding.found);
        if let Some(next) = &finding.next {
            text += &format!("{:10} → {next}\n", "");
        }
    }
    text
}

pub fn json(finding: &Finding) -> String {
    json!({
        "subject": finding.subject,
        "found": finding.found,
        "ok": finding.next.is_none(),
        "next": finding.next,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn findings_come_with_what_to_do() {
        let finding = |subject, found: &str, next: Option<&str>| Finding {
            subject,
            found: found.to_owned(),
            next: next.map(str::to_owned),
        };
        let found = [
            finding("server", "Postgres 15.18", None),
            finding(
                "created",
                "no",
                Some("CREATE EXTENSION hindcast, in the database shop"),
            ),
        ];
        expect![[r#"
            server     Postgres 15.18
            created    no
                       → CREATE EXTENSION hindcast, in the database shop
        "#]]
        .assert_eq(&findings(&found));
        expect![[r#"{"found":"no","next":"CREATE EXTENSION hindcast, in the database shop","ok":false,"subject":"created"}"#]]
            .assert_eq(&json(&found[1]));
    }
}
