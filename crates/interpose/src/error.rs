//! What can be wrong with an interface.

use std::path::PathBuf;

use crate::model::Place;

/// Why an annotated header is not understood. Every message begins with the place and ends with
/// what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    #[error("cannot run the C compiler `{command}`: {source}; set CC to one that takes -E and -S")]
    NoCompiler {
        command: String,
        source: std::io::Error,
    },
    #[error(
        "cannot run `mpicc`, which says where MPI's header is; install libopenmpi-dev or libmpich-dev"
    )]
    NoMpi,
    #[error("the C compiler refuses {}:\n{}", header.display(), message.trim_end())]
    Compiler { header: PathBuf, message: String },
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write {}: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} declares no function to interpose; write annotated prototypes into it, below #include \"hindcast.h\"", header.display())]
    Empty { header: PathBuf },
    #[error("{place}: this is no C declaration: `{found}`")]
    Syntax { place: Place, found: String },
    #[error(
        "{place}: `{keyword}` stands at something that is no function; write the prototype out, without typedefs around it"
    )]
    NotAFunction { place: Place, keyword: String },
    #[error("{place}: `{written}` is not understood; write {instead}")]
    Keyword {
        place: Place,
        written: String,
        instead: String,
    },
    #[error("{place}: `{text}` cannot be computed: {why}")]
    Expression {
        place: Place,
        text: String,
        why: String,
    },
    #[error("{place}: the parameter `{text}` has no name; give it one")]
    NoName { place: Place, text: String },
    #[error("{place}: nobody knows how much lies behind `{text}`; write bsize(BYTES)")]
    NoSize { place: Place, text: String },
    #[error("{place}: what happens behind `{text}` is not said; write {choices}")]
    Ambiguous {
        place: Place,
        text: String,
        choices: &'static str,
    },
    #[error(
        "{place}: {name} takes a variable number of arguments; write by_hand or harmless, or annotate its va_list sibling"
    )]
    Variadic { place: Place, name: String },
    #[error(
        "{place}: {what} is a structure passed by value; write by_hand, or annotate what lies above or below"
    )]
    ByValue { place: Place, what: String },
    #[error("{place}: {what}")]
    Contradiction { place: Place, what: String },
    #[error("{place}: {name} was declared already, at {first}; keep one")]
    Twice {
        place: Place,
        name: String,
        first: Place,
    },
}
