//! `hindcast rewind`

use hindcast_replay::{Start, restore};

use super::setting::{self, cannot_restore, cannot_start, refuse_pruned, rewind_options};
use crate::args::RewindArgs;
use crate::error::{CliError, Exit};

pub async fn run(args: RewindArgs) -> Result<Exit, CliError> {
    let trace = setting::open(&args.trace).await?;
    let start =
        Start::choose(&trace, Some(args.before), Some(args.before)).map_err(cannot_start)?;
    refuse_pruned(&trace, &start.plan)?;
    if start.plan.lead_in > 0 {
        return Err(CliError::failed(format!(
            "the nearest state that can be had is just before request {}, {} earlier",
            start.plan.first,
            crate::render::format::count(start.plan.lead_in, "request")
        ))
        .hint(format!(
            "`hindcast replay --from {first} --to {last} --app … --keep` replays from there; or rewind to before request {first}",
            first = start.plan.first,
            last = args.before
        )));
    }
    let options = rewind_options(&trace, &start.plan, &args.target, false)?;
    let (rewound, pinned) = restore(&trace, &start, &options)
        .await
        .map_err(cannot_restore)?;
    let kept = rewound
        .keep()
        .await
        .map_err(|error| CliError::because("the rewound database could not be kept", &error))?;
    if args.json {
        println!(
            "{}",
            serde_json::json!({ "before": args.before.to_string(), "url": kept.url.to_string(), "remove": kept.removal, "pinned": pinned.active })
        );
    } else {
        println!("The database as of just before request {}:", args.before);
        println!("  connect   psql '{}'", kept.url);
        println!("  remove    {}", kept.removal);
    }
    Ok(Exit::Success)
}
