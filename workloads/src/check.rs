//! What must hold of a workload's data: where a bug struck, a check finds it.
//!
//! A check is one query whose rows are sentences, each a violation; no rows, no violation.

use serde::Serialize;

use crate::load::{LoadError, connect};
use crate::{Workload, moodle, tpcc, wp_comments, wp_options};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What should hold.
    pub check: &'static str,
    /// The query that looks for violations.
    #[serde(skip)]
    pub query: &'static str,
    pub violations: Vec<String>,
}

/// Runs all checks in one snapshot.
pub async fn check(workload: Workload, database_url: &str) -> Result<Vec<Finding>, LoadError> {
    let (client, _connection) = connect(database_url).await?;
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let mut findings = Vec::new();
    for (check, query) in checks(workload) {
        let rows = client.query(query, &[]).await?;
        let violations = rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()?;
        findings.push(Finding {
            check,
            query,
            violations,
        });
    }
    client.batch_execute("COMMIT").await?;
    Ok(findings)
}

/// What should hold and the query that finds where it does not.
pub fn checks(workload: Workload) -> Vec<(&'static str, &'static str)> {
    let of = |part: &Workload| match part {
        Workload::Moodle => moodle::CHECKS,
        Workload::WpOptions => wp_options::CHECKS,
        Workload::WpComments => wp_comments::CHECKS,
        Workload::Tpcc => tpcc::schema::CHECKS,
        Workload::Wordpress => unreachable!("a combination is made of its parts"),
    };
    workload.parts().iter().flat_map(of).copied().collect()
}
