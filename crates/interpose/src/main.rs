//! `hindcast-interpose regenerate` writes the stubs that are built into the runtime.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["regenerate"] => regenerate(),
        _ => {
            eprintln!("usage: hindcast-interpose regenerate");
            ExitCode::from(2)
        }
    }
}

fn regenerate() -> ExitCode {
    let files = match hindcast_interpose::built_in(&hindcast_interpose::interfaces_folder()) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("Error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/src/generated");
    for file in files {
        let path = target.join(&file.name);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == file.text) {
            continue;
        }
        if let Err(error) = std::fs::write(&path, &file.text) {
            eprintln!("Error: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        println!("wrote {}", path.display());
    }
    ExitCode::SUCCESS
}
