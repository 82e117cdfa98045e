//! Builds the library that is loaded into recorded processes, and puts it where
//! [`runtime`](src/runtime.rs) embeds it.

use std::path::{Path, PathBuf};

/// Which functions have which number: the same table as the runtime's, written by `hindcast-stubs`.
const TABLE: &str = "../runtime/src/functions.rs";

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    table(&out);
    let runtime = hindcast_embed::Library {
        name: "runtime",
        uses: &["execlog", "order"],
        variable: "HINDCAST_RUNTIME",
    };
    runtime.embed();
}

/// Takes the names and their hash over, so that a recording can be shown and one with another table
/// refused.
fn table(out: &Path) {
    println!("cargo:rerun-if-changed={TABLE}");
    let text = match std::fs::read_to_string(TABLE) {
        Ok(text) => text,
        Err(error) => panic!("{TABLE} cannot be read: {error}"),
    };
    let part = |begin: &str, end: &str| match text
        .split_once(begin)
        .and_then(|(_, rest)| rest.split_once(end))
    {
        Some((part, _)) => part.trim().to_owned(),
        None => panic!("{TABLE} has no {begin:?}"),
    };
    let names = part("pub const NAMES: &[&str] =", ";");
    let hash = part("pub const TABLE_HASH: u64 =", ";");
    let made = format!(
        "static FUNCTION_NAMES: &[&str] = {names};\n/// Identifies the table of functions of the embedded runtime.\npub const FUNCTION_TABLE: u64 = {hash};\n"
    );
    if let Err(error) = std::fs::write(out.join("functions.rs"), made) {
        panic!("the table of functions cannot be written: {error}");
    }
}
