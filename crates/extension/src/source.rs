//! The files of `extension/`.

use std::path::Path;

/// As the control file says, and the library.
pub const VERSION: &str = "1.2";

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../extension/", $name)))),*]
    };
}

/// Name and content.
pub const FILES: [(&str, &str); 17] = files!(
    "Makefile"
    "hindcast.control"
    "hindcast--1.2.sql"
    "hindcast--1.0--1.1.sql"
    "hindcast--1.1--1.2.sql"
    "src/hindcast.h"
    "src/draw.c"
    "src/hindcast.c"
    "src/identity.c"
    "src/impose.c"
    "src/import.c"
    "src/large.c"
    "src/recheck.c"
    "src/ring.c"
    "src/snapshot.c"
    "src/sql.c"
    "src/transaction.c"
);

/// Writes them into a folder.
pub(crate) fn write(folder: &Path) -> std::io::Result<()> {
    hindcast_private::folder(folder.join("src"))?;
    for (name, content) in FILES {
        hindcast_private::write(folder.join(name), content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_says_the_same_version() {
        let file = |wanted: &str| {
            let found = FILES.iter().find(|(name, _)| *name == wanted);
            found.expect("it is embedded").1
        };
        assert!(file("hindcast.control").contains(&format!("default_version = '{VERSION}'")));
        assert!(file("src/hindcast.h").contains(&format!("HINDCAST_VERSION \"{VERSION}\"")));
        assert!(file("Makefile").contains(&format!("DATA = hindcast--{VERSION}.sql")));
    }

    #[test]
    fn every_source_is_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extension");
        for folder in ["", "src"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap().flatten() {
                let path = entry.path();
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                let embedded = FILES.iter().any(|(embedded, _)| *embedded == name);
                assert!(embedded || path.is_dir(), "{name} is not embedded");
            }
        }
    }
}
