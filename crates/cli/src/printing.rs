//! Printing for somebody who may have stopped reading: `head`, a pager, who kept a log.
//!
//! The standard macros panic then. A recorder or a standby goes on without being read, and what a
//! command prints at its end is no reason to fail. So these stand in their place in this crate.

macro_rules! print {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::write!(std::io::stdout(), $($text)*);
    }};
}

macro_rules! println {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::writeln!(std::io::stdout(), $($text)*);
    }};
}

macro_rules! eprint {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::write!(std::io::stderr(), $($text)*);
    }};
}

macro_rules! eprintln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::writeln!(std::io::stderr(), $($text)*);
    }};
}
