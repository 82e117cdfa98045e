//! The files of the page, as they were built from `page/`.

/// A file, and what kind it is.
pub struct File {
    pub kind: &'static str,
    pub bytes: &'static [u8],
}

pub fn file(path: &str) -> Option<File> {
    let (kind, bytes): (_, &[u8]) = match path {
        "/" => (
            "text/html; charset=utf-8",
            include_bytes!("../built/index.html"),
        ),
        "/page.js" => (
            "text/javascript; charset=utf-8",
            include_bytes!("../built/page.js"),
        ),
        "/page.css" => (
            "text/css; charset=utf-8",
            include_bytes!("../built/page.css"),
        ),
        "/icon.svg" => ("image/svg+xml", include_bytes!("../built/icon.svg")),
        _ => return None,
    };
    Some(File { kind, bytes })
}
