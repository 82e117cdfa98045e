//! `hindcast export`

use std::io::{BufWriter, Write};
use std::path::Path;

use hindcast_trace::Trace;
use hindcast_view::export::{self, ExportError, Tables};
use hindcast_view::words::count;
use hindcast_view::{Index, Progress, load};

use crate::args::ExportArgs;
use crate::error::{CliError, Exit};

pub fn run(args: &ExportArgs) -> Result<Exit, CliError> {
    let trace = super::open(&args.trace)?;
    let index = load(&trace, &Progress::default()).map_err(super::ls::unreadable)?;
    if let Some(path) = &args.perfetto {
        to_file(path, |out| export::perfetto(&trace, &index, out))?;
        eprintln!("{}: open it at https://ui.perfetto.dev", path.display());
    }
    if let Some(path) = &args.otlp {
        to_file(path, |out| export::otlp(&trace, &index, out))?;
        eprintln!("{}: spans as OTLP JSON", path.display());
    }
    if let Some(folder) = &args.csv {
        to_folder(folder, &trace, &index)?;
        eprintln!("{}: three tables as CSV", folder.display());
    }
    eprintln!(
        "Exported {} and {}.",
        count(index.requests() as u64, "request"),
        count(index.transactions() as u64, "transaction")
    );
    Ok(Exit::Success)
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
