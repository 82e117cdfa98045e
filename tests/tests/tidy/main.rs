//! What a tool can check about the tree, checked.
//!
//! - [`arrows`]: which crate uses which, against the table in `docs/architecture.md`.
//! - [`circles`]: files of one crate that need each other.
//! - [`creations`]: files and folders are made by `crates/private`.
//! - [`lengths`]: functions of at most 70 lines, files of at most 800, comments of at most 100
//!   columns.
//! - [`links`]: where documentation points into the tree.
//! - [`openings`]: what a crate says about itself.
//! - [`reasons`]: why each `unsafe` is sound.
//! - [`words`]: words that the glossary has replaced.
//!
//! Exceptions stand in `exceptions.txt`, by name. The list only shrinks: an entry that allows more
//! than there is fails like one that allows less. `figures` prints what `docs/results/house.md`
//! shows. `HINDCAST_TIDY_ROOT` names another checkout to look at.

mod arrows;
mod circles;
mod creations;
mod exceptions;
mod figures;
mod lengths;
mod links;
mod openings;
mod reasons;
mod sources;
mod words;
