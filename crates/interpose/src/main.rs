//! The generator by hand. `hindcast exec` does the last two for users.

use std::path::Path;
use std::process::ExitCode;

use hindcast_interpose::imports::{self, Coverage};
use hindcast_interpose::{build, generated, interfaces_folder};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["regenerate"] => regenerate(),
        ["build", header, folder] => build_own(header, folder),
        ["check", program] => check(program),
        _ => {
            eprintln!("usage: hindcast-interpose regenerate | build HEADER FOLDER | check PROGRAM");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), Box<dyn std::error::Error>>;

/// Writes what changed, and says so.
fn regenerate() -> Done {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (path, text) in generated(&interfaces_folder())? {
        let target = crates.join(&path);
        if !std::fs::read_to_string(&target).is_ok_and(|old| old == text) {
            std::fs::write(&target, &text)?;
            println!("wrote crates/{}", path.display());
        }
    }
    Ok(())
}

fn build_own(header: &str, folder: &str) -> Done {
    std::fs::create_dir_all(folder)?;
    let built = build(header.as_ref(), folder.as_ref())?;
    println!("{} stubs in {}", built.stubs, built.library.display());
    Ok(())
}

fn check(program: &str) -> Done {
    let checked = imports::check(program.as_ref(), &[], &Default::default())?;
    let covered = checked
        .names(|coverage| {
            matches!(
                coverage,
                Coverage::Annotated { .. } | Coverage::ByHand { .. }
            )
        })
        .len();
    let harmless = checked
        .names(|coverage| *coverage == Coverage::Harmless)
        .len();
    println!(
        "{} files: {covered} functions covered, {harmless} harmless",
        checked.files.len()
    );
    for (name, files) in checked.missing() {
        let files: Vec<_> = files
            .iter()
            .map(|path| path.file_name().unwrap_or_default().to_string_lossy())
            .collect();
        println!("missing: {name} ({})", files.join(", "));
    }
    for (name, by) in &checked.not_found {
        println!("not found: {name}, needed by {}", by.display());
    }
    Ok(())
}
