//! The list of template databases that bases left in a server.

use hindcast_rewind::Template;
use serde_json::json;

use super::format::{bytes, count, cut};

/// A base, and what is known of its use.
#[derive(Clone, Debug)]
pub struct Listed {
    pub template: Template,
    pub used: Use,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// These recordings start from it.
    By(Vec<String>),
    /// The recording for which it was taken is not where it was, or starts from another base.
    Gone,
    /// It was not said for which recording it was taken, or that cannot be read from here.
    Unknown,
}

const UNKNOWN: &str = "unknown";

fn used(base: &Listed) -> String {
    match (&base.used, &base.template.recording) {
        (Use::By(recordings), _) => recordings.join(", "),
        (Use::Gone, Some(recording)) => format!("{recording} (not there any more)"),
        (Use::Unknown, Some(recording)) => format!("{recording} (cannot be read from here)"),
        (Use::Gone | Use::Unknown, None) => UNKNOWN.to_owned(),
    }
}

pub fn table(bases: &[Listed]) -> String {
    if bases.is_empty() {
        return "The server has no bases.\n".to_owned();
    }
    let rows: Vec<[String; 5]> = bases
        .iter()
        .map(|base| {
            let template = &base.template;
            [
                cut(&template.database, usize::MAX),
                cut(&template.source, usize::MAX),
                bytes(template.bytes),
                template.taken.as_deref().unwrap_or(UNKNOWN).to_owned(),
                cut(&used(base), usize::MAX),
            ]
        })
        .collect();
    let heads = ["BASE", "OF", "SIZE", "TAKEN (UTC)", "RECORDING"].map(str::to_owned);
    let width = |column: usize| {
        let cells = rows
            .iter()
            .chain([&heads])
            .map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut text = String::new();
    for row in [&heads].into_iter().chain(&rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    let total = bases.iter().map(|base| base.template.bytes).sum();
    text += &format!(
        "{}, {}. Remove those that you do not need with `hindcast base drop NAME`.\n",
        count(bases.len() as u64, "base"),
        bytes(total)
    );
    text
}

pub fn json(base: &Listed) -> serde_json::Value {
    let Listed { template, used } = base;
    json!({
        "base": template.database,
        "of": template.source,
        "bytes": template.bytes,
        "taken": template.taken,
        "taken_for": template.recording,
        "used_by": match used {
            Use::By(recordings) => Some(recordings.clone()),
            Use::Gone => Some(Vec::new()),
            Use::Unknown => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn base(name: &str, megabytes: u64, recording: Option<&str>, used: Use) -> Listed {
        Listed {
            template: Template {
                database: format!("hindcast_base_{name}"),
                source: "shop".to_owned(),
                bytes: megabytes * 1_000_000,
                taken: recording.map(|_| "2026-11-22 19:20:11".to_owned()),
                recording: recording.map(str::to_owned),
            },
            used,
        }
    }

    #[test]
    fn a_list_says_which_recording_needs_what() {
        let trace = "/srv/trace".to_owned();
        let bases = [
            base(
                "one",
                8,
                Some("/srv/trace"),
                Use::By(vec![trace, "s3://b/t".to_owned()]),
            ),
            base("two", 1234, Some("/srv/old"), Use::Gone),
            base("three", 9, None, Use::Unknown),
            base("four", 9, Some("s3://bucket/x"), Use::Unknown),
        ];
        expect![[r#"
            BASE                 OF    SIZE       TAKEN (UTC)          RECORDING
            hindcast_base_one    shop  8000.0 kB  2026-11-22 19:20:11  /srv/trace, s3://b/t
            hindcast_base_two    shop  1234.0 MB  2026-11-22 19:20:11  /srv/old (not there any more)
            hindcast_base_three  shop  9000.0 kB  unknown              unknown
            hindcast_base_four   shop  9000.0 kB  2026-11-22 19:20:11  s3://bucket/x (cannot be read from here)
            4 bases, 1260.0 MB. Remove those that you do not need with `hindcast base drop NAME`.
        "#]]
        .assert_eq(&table(&bases));
        assert_eq!(table(&[]), "The server has no bases.\n");
        expect![[r#"{"base":"hindcast_base_two","bytes":1234000000,"of":"shop","taken":"2026-11-22 19:20:11","taken_for":"/srv/old","used_by":[]}"#]]
            .assert_eq(&json(&bases[1]).to_string());
    }
}
