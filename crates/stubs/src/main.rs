//! Writes what the headers give where it is committed, and says which files changed.

use std::path::Path;

use hindcast_interpose::interfaces_folder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (path, text) in hindcast_stubs::generated(&interfaces_folder())? {
        let target = crates.join(&path);
        if !std::fs::read_to_string(&target).is_ok_and(|old| old == text) {
            std::fs::write(&target, &text)?;
            println!("wrote crates/{}", path.display());
        }
    }
    Ok(())
}
