//! `hindcast export`

mod duckdb;
mod share;

use std::io::{BufWriter, Write};
use std::path::Path;

use hindcast_trace::{Location, Trace};
use hindcast_view::export::{self, ExportError, Tables};
use hindcast_view::words::count;
use hindcast_view::{Index, Progress, load};

use crate::args::ExportArgs;
use crate::error::{CliError, Exit};

pub async fn run(args: ExportArgs) -> Result<Exit, CliError> {
    let trace = super::setting::open(&args.trace).await?;
    if let Some(path) = &args.sql {
        to_views(&args, &trace, path)?;
    }
    if args.perfetto.is_some() || args.otlp.is_some() || args.csv.is_some() {
        to_files(&args, &trace)?;
    }
    if let Some(folder) = &args.redact {
        share::run(&args, &trace, folder).await?;
    }
    Ok(Exit::Success)
}

/// What is read whole and written anew.
fn to_files(args: &ExportArgs, trace: &Trace) -> Result<(), CliError> {
    let index = load(trace, &Progress::default()).map_err(super::ls::unreadable)?;
    if let Some(path) = &args.perfetto {
        to_file(path, |out| export::perfetto(trace, &index, out))?;
        eprintln!("{}: open it at https://ui.perfetto.dev", path.display());
    }
    if let Some(path) = &args.otlp {
        to_file(path, |out| export::otlp(trace, &index, out))?;
        eprintln!("{}: spans as OTLP JSON", path.display());
    }
    if let Some(folder) = &args.csv {
        to_folder(folder, trace, &index)?;
        eprintln!("{}: three tables as CSV", folder.display());
    }
    eprintln!(
        "Exported {} and {}.",
        count(index.requests() as u64, "request"),
        count(index.transactions() as u64, "transaction")
    );
    Ok(())
}

/// Views over the files where they are: a database, or the script that makes it.
fn to_views(args: &ExportArgs, trace: &Trace, path: &Path) -> Result<(), CliError> {
    let Location::Folder(folder) = &args.trace.trace else {
        return Err(
            CliError::usage("--sql needs the recording in a folder, and it is in a store")
                .hint("copy it into one first, as with `aws s3 sync`"),
        );
    };
    if trace.is_encrypted() {
        return Err(CliError::usage("DuckDB cannot read an encrypted recording")
            .hint("make a copy with `hindcast decrypt --to COPY`, and export that"));
    }
    let mut script = Vec::new();
    export::sql(trace, folder, &mut script)
        .map_err(|error| CliError::because("the views cannot be written", &error))?;
    if path == Path::new("-") {
        let written = std::io::stdout().write_all(&script);
        return written.map_err(|error| CliError::because("cannot write the views", &error));
    }
    if path.extension().is_some_and(|ending| ending == "sql") {
        to_file(path, |out| Ok(out.write_all(&script)?))?;
        eprintln!("{0}: duckdb NEW.duckdb <{0}", path.display());
    } else {
        duckdb::make(path, &script)?;
        eprintln!("{0}: duckdb {0} -c 'SHOW TABLES'", path.display());
    }
    if !trace.recording().is_empty() {
        eprintln!(
            "Note: it is being recorded: views have what is in segments by now, and will have later ones."
        );
    }
    Ok(())
}

fn create(path: &Path) -> Result<BufWriter<std::fs::File>, CliError> {
    let file = hindcast_private::create(path);
    file.map(BufWriter::new)
        .map_err(|error| CliError::because(format!("cannot write {}", path.display()), &error))
}

fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), ExportError>,
) -> Result<(), CliError> {
    let mut file = create(path)?;
    let written = write(&mut file).and_then(|()| Ok(file.flush()?));
    written.map_err(|error| CliError::because(format!("cannot write {}", path.display()), &error))
}

fn to_folder(folder: &Path, trace: &Trace, index: &Index) -> Result<(), CliError> {
    let cannot = |error: &dyn std::error::Error| {
        CliError::because(format!("cannot write into {}", folder.display()), error)
    };
    hindcast_private::folders(folder).map_err(|error| cannot(&error))?;
    let mut requests = create(&folder.join("requests.csv"))?;
    let mut transactions = create(&folder.join("transactions.csv"))?;
    let mut statements = create(&folder.join("statements.csv"))?;
    let tables = Tables {
        requests: &mut requests,
        transactions: &mut transactions,
        statements: &mut statements,
    };
    export::csv(trace, index, tables).map_err(|error| cannot(&error))?;
    for file in [&mut requests, &mut transactions, &mut statements] {
        file.flush().map_err(|error| cannot(&error))?;
    }
    Ok(())
}
