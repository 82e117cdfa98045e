//! `hindcast export --redact`

use std::path::Path;

use hindcast_gateway::redact::{RuleError, Rules};
use hindcast_replay::Start;
use hindcast_replay::share::{Share, ShareError, share};
use hindcast_trace::Trace;
use hindcast_view::words::count;

use crate::args::ExportArgs;
use crate::commands::setting;
use crate::error::CliError;

pub async fn run(args: &ExportArgs, trace: &Trace, folder: &Path) -> Result<(), CliError> {
    let rules = rules(args, trace)?;
    let start = Start::choose(trace, args.from, args.to).map_err(setting::cannot_start)?;
    setting::refuse_gaps(trace, &start.plan, false)?;
    let rewinding = setting::rewind_options(trace, &start.plan, &args.target, false)?;
    let shared = share(trace, &start, &rules, &rewinding, folder)
        .await
        .map_err(|error| failed(folder, &error))?;
    say(&shared, &start, folder);
    Ok(())
}

/// What the recording leaves out, what is left out by default, and what is asked for.
fn rules(args: &ExportArgs, trace: &Trace) -> Result<Rules, CliError> {
    let mut rules = Rules::defaults();
    let recorded = trace.recorders().iter().flat_map(|it| &it.redacted);
    for rule in recorded.chain(&args.rule) {
        let wrong = |error: RuleError| CliError::usage(format!("--rule: {error}"));
        rules.add(rule).map_err(wrong)?;
    }
    Ok(rules)
}

fn failed(folder: &Path, error: &ShareError) -> CliError {
    let failed = CliError::because("nothing that could be given away was made", error);
    let hint = match error {
        ShareError::Taken(_) => Some("choose a folder that is not there".to_owned()),
        ShareError::Rewind(error) => error.hint(),
        _ => Some(format!("remove {}, and try again", folder.display())),
    };
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

fn say(shared: &Share, start: &Start, folder: &Path) {
    eprintln!(
        "{}: {} and {}, without secrets.",
        folder.display(),
        count(shared.requests, "request"),
        count(shared.transactions, "transaction")
    );
    if start.plan.lead_in > 0 {
        eprintln!(
            "Note: {} of them came before, and are needed: the base is that much older. `hindcast base` takes another.",
            count(start.plan.lead_in, "request")
        );
    }
    if !shared.columns.is_empty() {
        eprintln!("Hashed in the base: {}", shared.columns.join(", "));
    }
    if shared.not_compared > 0 {
        eprintln!(
            "Note: the answers to {} are not compared: their bodies were not kept, and may hold secrets.",
            count(shared.not_compared, "request")
        );
    }
    eprintln!(
        "Look at what is in it before you give it away: no rule finds a secret in text, paths or columns with other names."
    );
    eprintln!("  hindcast replay --trace {}", folder.display());
}
