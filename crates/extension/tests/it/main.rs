//! The extension in a real server: what it records of every kind of transaction, its ring, and
//! statements with somebody else's snapshot.
//!
//! The tests install the extension into the server that they use, as a user does.

mod built;
mod checked;
mod drawn;
mod ended;
mod imposed;
mod nested;
mod recorded;
mod ring;
mod server;
