//! From prototypes with keywords to the model, with an answer for everything that was left unsaid
//! or said wrongly.

mod function;
mod keyword;
mod parameter;

use std::path::Path;

use crate::InterfaceError;
use crate::model::*;
use crate::oracle::Oracle;
use crate::source::{self, Prototype, Source};

/// Reads an annotated header. `include` are folders for its `#include`s; the one with `hindcast.h`
/// must be among them.
pub fn read(header: &Path, include: &[&Path]) -> Result<Interface, InterfaceError> {
    let source = source::read(header, include)?;
    understand(&source, header)
}

/// Reads text that went through the preprocessor and claims to be `header`.
pub fn read_preprocessed(text: &str, header: &str) -> Result<Interface, InterfaceError> {
    let source = source::parse(text.to_owned(), header)?;
    understand(&source, Path::new(header))
}

fn understand(source: &Source, header: &Path) -> Result<Interface, InterfaceError> {
    let mut oracle = Oracle::default();
    loop {
        let functions: Result<Vec<_>, _> = source
            .prototypes
            .iter()
            .enumerate()
            .map(|(number, prototype)| {
                Reading {
                    source,
                    oracle: &oracle,
                    number,
                    prototype,
                }
                .function()
            })
            .collect();
        if oracle.is_satisfied() {
            let functions = functions?;
            unique(&functions)?;
            let name = header
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            return Ok(Interface {
                name,
                header: header.into(),
                functions,
            });
        }
        oracle.answer(source, header)?;
    }
}

fn unique(functions: &[Function]) -> Result<(), InterfaceError> {
    let mut seen = std::collections::HashMap::new();
    for function in functions {
        for symbol in function.symbols() {
            if let Some(first) = seen.insert(symbol, &function.place) {
                return Err(InterfaceError::Twice {
                    place: function.place.clone(),
                    name: symbol.to_owned(),
                    first: first.clone(),
                });
            }
        }
    }
    Ok(())
}

/// One prototype on its way to a function.
struct Reading<'a> {
    source: &'a Source,
    oracle: &'a Oracle,
    number: usize,
    prototype: &'a Prototype,
}
