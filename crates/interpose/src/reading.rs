//! From prototypes with keywords to the model, with an answer for everything that was left unsaid or said wrongly.

use std::path::Path;

use crate::InterfaceError;
use crate::expression::{Scope, multiply};
use crate::model::*;
use crate::oracle::Oracle;
use crate::source::{self, Annotation, Behind, Prototype, Source, Written};

/// Reads an annotated header. `include` are folders for its `#include`s; the one with `hindcast.h` must be among them.
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

/// A keyword with its arguments.
struct Keyword<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    place: &'a Place,
}

impl<'a> Keyword<'a> {
    fn parse(annotation: &'a Annotation) -> Keyword<'a> {
        let text = annotation.text.trim();
        let (name, arguments) = match text.split_once('(') {
            Some((name, rest)) => (name.trim(), split(rest.strip_suffix(')').unwrap_or(rest))),
            None => (text, Vec::new()),
        };
        Keyword {
            name,
            arguments,
            place: &annotation.place,
        }
    }

    fn wrong(&self, instead: &str) -> InterfaceError {
        let written = match self.arguments.as_slice() {
            [] => self.name.to_owned(),
            arguments => format!("{}({})", self.name, arguments.join(", ")),
        };
        InterfaceError::Keyword {
            place: self.place.clone(),
            written,
            instead: instead.to_owned(),
        }
    }

    fn one(&self, instead: &str) -> Result<&'a str, InterfaceError> {
        match self.arguments.as_slice() {
            [one] if !one.is_empty() => Ok(one),
            _ => Err(self.wrong(instead)),
        }
    }

    fn two(&self, instead: &str) -> Result<(&'a str, &'a str), InterfaceError> {
        match self.arguments.as_slice() {
            [one, two] => Ok((one, two)),
            _ => Err(self.wrong(instead)),
        }
    }
}

/// Arguments at the commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut arguments = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b',' if depth == 0 => {
                arguments.push(text[start..offset].trim());
                start = offset + 1;
            }
            _ => {}
        }
    }
    arguments.push(text[start..].trim());
    arguments
}

struct Reading<'a> {
    source: &'a Source,
    oracle: &'a Oracle,
    number: usize,
    prototype: &'a Prototype,
}

impl Reading<'_> {
    fn function(&self) -> Result<Function, InterfaceError> {
        let prototype = self.prototype;
        let scope = Scope::new(self.source, self.oracle, self.number, prototype);
        let keywords: Vec<_> = prototype.annotations.iter().map(Keyword::parse).collect();
        let has = |name: &str| keywords.iter().any(|keyword| keyword.name == name);

        let call = match keywords.iter().find(|keyword| keyword.name == "kernel") {
            Some(keyword) => Some(
                keyword
                    .one("kernel(NAME) for the system call SYS_NAME")?
                    .to_owned(),
            ),
            None => None,
        };
        let code = match (call, has("by_hand"), has("harmless")) {
            (call, true, false) => Code::ByHand { call },
            (Some(call), false, false) => Code::Kernel {
                call,
                exported: !has("trap_only"),
            },
            (None, false, true) => Code::Harmless,
            (None, false, false) => Code::Library,
            (_, _, true) => {
                return Err(InterfaceError::Contradiction {
                    place: prototype.place.clone(),
                    what: "a harmless function needs no code, so neither kernel nor by_hand"
                        .to_owned(),
                });
            }
        };
        let generated = matches!(code, Code::Kernel { .. } | Code::Library);
        if generated && prototype.variadic {
            return Err(InterfaceError::Variadic {
                place: prototype.place.clone(),
                name: prototype.name.clone(),
            });
        }
        if generated
            && let Some(nameless) = prototype
                .parameters
                .iter()
                .find(|parameter| !parameter.named)
        {
            return Err(InterfaceError::NoName {
                place: nameless.place.clone(),
                text: nameless.text.clone(),
            });
        }
        if let (Code::Kernel { .. }, Some(extra)) = (&code, prototype.parameters.get(6)) {
            return Err(InterfaceError::Contradiction {
                place: extra.place.clone(),
                what: "a system call has at most six arguments".to_owned(),
            });
        }
        if has("trap_only") && !has("kernel") {
            return Err(InterfaceError::Contradiction {
                place: prototype.place.clone(),
                what: "trap_only without kernel(NAME): the trap knows system calls, not symbols"
                    .to_owned(),
            });
        }

        let mut function = Function {
            name: prototype.name.clone(),
            place: prototype.place.clone(),
            signature: self.signature(),
            result: Type::Void,
            parameters: Vec::new(),
            variadic: prototype.variadic,
            code,
            aliases: Vec::new(),
            blocks: false,
            failure: Failure::Never,
            new_descriptor: None,
            closes: None,
            sync: Vec::new(),
            cache: false,
            reproduce: false,
            prepare: None,
            commit: None,
            foreign: None,
            releases: Vec::new(),
            frees: None,
        };
        if generated {
            function.result = self.result_type(&scope)?;
            for written in &prototype.parameters {
                function
                    .parameters
                    .push(self.parameter(&scope, written, false)?);
            }
        }
        for keyword in &keywords {
            match keyword.name {
                "kernel" | "by_hand" | "harmless" | "trap_only" => {}
                "block" => function.blocks = true,
                "cache" => function.cache = true,
                "reproduce" => function.reproduce = true,
                "alias" => function
                    .aliases
                    .extend(keyword.arguments.iter().map(|alias| (*alias).to_owned())),
                // What follows is about data, which code by hand deals with itself.
                _ if !generated => {}
                "fails" => {
                    let how = "fails(minus1), fails(null), fails(nonzero) or fails(never)";
                    function.failure = match keyword.one(how)? {
                        "minus1" => Failure::Minus1,
                        "null" => Failure::Null,
                        "nonzero" => Failure::NonZero,
                        "never" => Failure::Never,
                        _ => return Err(keyword.wrong(how)),
                    };
                }
                "newfd" => function.new_descriptor = Some(descriptor_kind(keyword)?),
                "closefd" => {
                    let name = keyword.one("closefd(PARAMETER)")?;
                    let (index, _) = function
                        .parameter(name)
                        .ok_or_else(|| keyword.wrong("the name of a parameter"))?;
                    function.closes = Some(index);
                }
                "sync" => {
                    let (key, moments) = match keyword.arguments.as_slice() {
                        [key] => (*key, vec![Moment::Before]),
                        [key, "before"] => (*key, vec![Moment::Before]),
                        [key, "after"] => (*key, vec![Moment::After]),
                        _ => {
                            return Err(
                                keyword.wrong("sync(KEY), sync(KEY, before) or sync(KEY, after)")
                            );
                        }
                    };
                    let key = scope.expression(key, keyword.place)?;
                    if key.uses_result {
                        return Err(
                            keyword.wrong("a key that is known before the call, without `result`")
                        );
                    }
                    function.sync.extend(moments.into_iter().map(|moment| Sync {
                        key: key.clone(),
                        moment,
                    }));
                }
                "prepare" => {
                    let (key, buffer) = keyword.two("prepare(KEY, BUFFER PARAMETER)")?;
                    let (buffer, _) = function
                        .parameter(buffer)
                        .ok_or_else(|| keyword.wrong("a parameter as the buffer"))?;
                    function.prepare = Some(Prepare {
                        key: scope.expression(key, keyword.place)?,
                        buffer,
                    });
                }
                "commit" => {
                    let (key, size) = keyword.two("commit(KEY, SIZE)")?;
                    let size = scope.expression(size, keyword.place)?;
                    function.commit = Some(Commit {
                        key: scope.expression(key, keyword.place)?,
                        size,
                    });
                }
                "frees" => {
                    let name = keyword.one("frees(PARAMETER)")?;
                    let (index, _) = function
                        .parameter(name)
                        .filter(|(_, parameter)| {
                            parameter.kind == Type::Pointer || !self.oracle.is_satisfied()
                        })
                        .ok_or_else(|| keyword.wrong("the name of a pointer parameter"))?;
                    function.frees = Some(index);
                }
                "releases" => function
                    .releases
                    .push(scope.expression(keyword.one("releases(KEY)")?, keyword.place)?),
                "xpointer" => {
                    if function.result != Type::Pointer && self.oracle.is_satisfied() {
                        return Err(keyword.wrong(
                            "xpointer on a function that returns a pointer, or on an out parameter",
                        ));
                    }
                    function.foreign = Some(foreign(&scope, keyword)?);
                }
                "in" | "out" | "inout" | "instr" | "bsize" | "nullable" | "unchecked" | "iovec"
                | "msghdr" | "echo" | "callback" | "strings" | "always" => {
                    return Err(keyword
                        .wrong("this before a parameter; here it stands beside the function"));
                }
                _ => return Err(keyword.wrong("a keyword of hindcast.h")),
            }
        }
        if let Some(prepare) = &function.prepare
            && !matches!(
                function.parameters[prepare.buffer].transfer,
                Transfer::Out(_)
            )
        {
            return Err(InterfaceError::Contradiction {
                place: function.place.clone(),
                what: format!(
                    "prepare: `{}` must be an out parameter with bsize",
                    function.parameters[prepare.buffer].name
                ),
            });
        }
        let gives = |parameter: &Parameter| {
            matches!(
                parameter.transfer,
                Transfer::Out(_)
                    | Transfer::InOut(_)
                    | Transfer::Iovec { out: true, .. }
                    | Transfer::Msghdr { out: true }
            )
        };
        if function.cache
            && (function.foreign.is_some()
                || function.commit.is_some()
                || function.parameters.iter().any(gives))
        {
            return Err(InterfaceError::Contradiction {
                place: function.place.clone(),
                what: "cache is for functions that give nothing but their result".to_owned(),
            });
        }
        if function.reproduce
            && function
                .parameters
                .iter()
                .any(|parameter| matches!(parameter.transfer, Transfer::Callback(_)))
        {
            return Err(InterfaceError::Contradiction {
                place: function.place.clone(),
                what: "reproduce runs the function again, callbacks and all: leave the keyword callback out".to_owned(),
            });
        }
        Ok(function)
    }

    fn signature(&self) -> String {
        let text = &self.source.text[self.prototype.span.start..self.prototype.span.end];
        source::plain(text)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace("( ", "(")
            .replace(" ,", ",")
    }

    fn result_type(&self, scope: &Scope) -> Result<Type, InterfaceError> {
        let arguments: Vec<_> = self
            .prototype
            .parameters
            .iter()
            .map(|parameter| parameter.name.as_str())
            .collect();
        let call = format!(
            "hindcast_function_{}({})",
            self.number,
            arguments.join(", ")
        );
        if scope.ask(format!(
            "__builtin_types_compatible_p(__typeof__({call}), void)"
        )) != 0
        {
            return Ok(Type::Void);
        }
        // Inside the question's own function `result` has the result's type.
        let name = if arguments.contains(&"result") {
            call.as_str()
        } else {
            "result"
        };
        let kind = machine_type(scope, name);
        match kind {
            Type::Aggregate { .. } if self.oracle.is_satisfied() => Err(InterfaceError::ByValue {
                place: self.prototype.place.clone(),
                what: format!("the result of {}", self.prototype.name),
            }),
            kind => Ok(kind),
        }
    }

    fn parameter(
        &self,
        scope: &Scope,
        written: &Written,
        of_callback: bool,
    ) -> Result<Parameter, InterfaceError> {
        let keywords: Vec<_> = written.annotations.iter().map(Keyword::parse).collect();
        let find = |name: &str| keywords.iter().find(|keyword| keyword.name == name);
        if !written.named {
            return Err(InterfaceError::NoName {
                place: written.place.clone(),
                text: written.text.clone(),
            });
        }
        // The parameters of callbacks are not in the oracle's scope: what syntax tells has to do.
        let kind = match (&written.pointer, of_callback) {
            (Some(_), _) => Type::Pointer,
            (None, true) => match written.text.trim_start_matches("const ") {
                text if text.starts_with("long") || text.starts_with("sqlite3_int64") => {
                    Type::Integer {
                        bytes: 8,
                        signed: true,
                    }
                }
                text if text.starts_with("unsigned long") || text.starts_with("size_t") => {
                    Type::Integer {
                        bytes: 8,
                        signed: false,
                    }
                }
                text if text.starts_with("unsigned") => Type::Integer {
                    bytes: 4,
                    signed: false,
                },
                text if text.starts_with("int") || text.starts_with("enum") => Type::Integer {
                    bytes: 4,
                    signed: true,
                },
                _ => {
                    return Err(InterfaceError::Keyword {
                        place: written.place.clone(),
                        written: written.text.clone(),
                        instead: "int, unsigned, long, size_t or a pointer as the parameter of a callback".to_owned(),
                    });
                }
            },
            (None, false) => machine_type(scope, &written.name),
        };
        if matches!(kind, Type::Aggregate { .. }) && self.oracle.is_satisfied() {
            return Err(InterfaceError::ByValue {
                place: written.place.clone(),
                what: format!("parameter `{}`", written.name),
            });
        }
        let mut parameter = Parameter {
            name: written.name.clone(),
            place: written.place.clone(),
            text: written.text.clone(),
            kind,
            transfer: Transfer::Value,
            nullable: find("nullable").is_some(),
            unchecked: find("unchecked").is_some(),
            always: find("always").is_some(),
            foreign: None,
            echo: None,
            new_descriptors: None,
        };
        let size = match find("bsize") {
            Some(keyword) => {
                let size = scope.expression(keyword.one("bsize(BYTES)")?, keyword.place)?;
                if size.uses_result && find("out").is_none() {
                    return Err(keyword
                        .wrong("a size without `result`: what is read is known before the call"));
                }
                Some(size)
            }
            None => None,
        };
        let directions: Vec<_> = keywords
            .iter()
            .filter(|keyword| {
                matches!(
                    keyword.name,
                    "in" | "out" | "inout" | "instr" | "iovec" | "msghdr" | "callback" | "strings"
                )
            })
            .collect();
        if let [_, second, ..] = directions.as_slice() {
            return Err(second.wrong("one direction per parameter; inout for both"));
        }
        let direction = directions.first().map_or("", |keyword| keyword.name);
        if written.pointer.is_none()
            && let Some(keyword) = keywords
                .iter()
                .find(|keyword| !matches!(keyword.name, "in" | "unchecked"))
        {
            return Err(keyword.wrong(&format!("nothing: `{}` is no pointer", written.text)));
        }
        let whole = || -> Result<Expression, InterfaceError> {
            let behind = written.pointer.map(|pointee| pointee.kind);
            match (behind, &written.array) {
                (Some(Behind::Void | Behind::Unknown), _) => Err(InterfaceError::NoSize {
                    place: written.place.clone(),
                    text: written.text.clone(),
                }),
                (_, array) => {
                    let one = scope.ask(format!("sizeof(*({}))", written.name));
                    let count = array.as_ref().map_or(1, |count| scope.ask(count.clone()));
                    let text = match array {
                        Some(count) => format!("sizeof(*{}) * ({count})", written.name),
                        None => format!("sizeof(*{})", written.name),
                    };
                    Ok(Expression {
                        text,
                        value: multiply(Value::Constant(count), one),
                        uses_result: false,
                    })
                }
            }
        };
        parameter.transfer = match (direction, written.pointer) {
            (_, None) => Transfer::Value,
            ("out", Some(_)) => Transfer::Out(size.map_or_else(whole, Ok)?),
            ("inout", Some(_)) => Transfer::InOut(size.map_or_else(whole, Ok)?),
            ("instr", Some(_)) => Transfer::InString,
            ("strings", Some(_)) => {
                let keyword = directions[0];
                let count = keyword.one("strings(COUNT)")?;
                if !of_callback {
                    return Err(keyword.wrong("strings only for parameters of callbacks"));
                }
                Transfer::Strings(scope.expression(count, keyword.place)?)
            }
            ("iovec", Some(_)) => {
                let how = "iovec(in, COUNT) or iovec(out, COUNT)";
                let (way, count) = directions[0].two(how)?;
                let out = match way {
                    "in" => false,
                    "out" => true,
                    _ => return Err(directions[0].wrong(how)),
                };
                Transfer::Iovec {
                    out,
                    count: scope.expression(count, directions[0].place)?,
                }
            }
            ("msghdr", Some(_)) => match directions[0].one("msghdr(in) or msghdr(out)")? {
                "in" => Transfer::Msghdr { out: false },
                "out" => Transfer::Msghdr { out: true },
                _ => return Err(directions[0].wrong("msghdr(in) or msghdr(out)")),
            },
            ("callback", Some(_)) => {
                let how = "callback(during) or callback(later)";
                let lasting = match directions[0].one(how)? {
                    "during" => Lasting::During,
                    "later" => Lasting::Later,
                    _ => return Err(directions[0].wrong(how)),
                };
                let Some(of_callback) = &written.parameters else {
                    return Err(directions[0].wrong("a parameter whose type is written out: int (*compare)(in bsize(8) const void *a, ...)"));
                };
                let mut parameters = Vec::new();
                for written in of_callback {
                    let inner = Scope {
                        source: scope.source,
                        oracle: scope.oracle,
                        prototype: scope.prototype,
                        names: of_callback
                            .iter()
                            .map(|written| written.name.as_str())
                            .collect(),
                        typed: false,
                    };
                    parameters.push(self.parameter(&inner, written, true)?);
                }
                let result = match written.text.split('(').next().unwrap_or("").trim() {
                    "void" => Type::Void,
                    "int" => Type::Integer {
                        bytes: 4,
                        signed: true,
                    },
                    text if text.ends_with('*') => Type::Pointer,
                    _ => {
                        return Err(
                            directions[0].wrong("a callback that returns void, int or a pointer")
                        );
                    }
                };
                Transfer::Callback(Callback {
                    lasting,
                    result,
                    parameters,
                })
            }
            ("in" | "", Some(pointee)) => match (pointee.kind, size) {
                (_, Some(size)) => Transfer::In(size),
                _ if parameter.unchecked => Transfer::Value,
                (Behind::Void | Behind::Unknown, None) => Transfer::Value,
                (Behind::Char, None) => {
                    return Err(InterfaceError::Ambiguous {
                        place: written.place.clone(),
                        text: written.text.clone(),
                        choices: "instr for a string, bsize(BYTES) for bytes, unchecked for neither",
                    });
                }
                (Behind::Known, None) if of_callback => Transfer::Value,
                (Behind::Known, None) if pointee.constant || direction == "in" => {
                    Transfer::In(whole()?)
                }
                (Behind::Known, None) => {
                    return Err(InterfaceError::Ambiguous {
                        place: written.place.clone(),
                        text: written.text.clone(),
                        choices: "in, out or inout, and bsize(BYTES) when it is more than one",
                    });
                }
            },
            (other, Some(_)) => unreachable!("{other} is no direction"),
        };
        for keyword in &keywords {
            match keyword.name {
                "in" | "out" | "inout" | "instr" | "iovec" | "msghdr" | "callback" | "strings"
                | "bsize" | "nullable" | "unchecked" | "always" => {}
                "echo" => {
                    let (descriptor, size) = keyword.two("echo(DESCRIPTOR, BYTES)")?;
                    let descriptor = scope.expression(descriptor, keyword.place)?;
                    parameter.echo = Some(Echo {
                        descriptor,
                        size: scope.expression(size, keyword.place)?,
                    });
                }
                "newfd" => parameter.new_descriptors = Some(descriptor_kind(keyword)?),
                "xpointer" => {
                    if !matches!(parameter.transfer, Transfer::Out(_)) {
                        return Err(keyword.wrong(
                            "out xpointer(...): the pointer comes out through this parameter",
                        ));
                    }
                    parameter.foreign = Some(foreign(scope, keyword)?);
                }
                _ => return Err(keyword.wrong(
                    "a keyword for parameters; this one stands beside the function, if it is one",
                )),
            }
        }
        Ok(parameter)
    }
}

fn machine_type(scope: &Scope, name: &str) -> Type {
    let bytes = scope.ask(format!("sizeof({name})"));
    let Some(class) = scope.answer(format!("__builtin_classify_type({name})")) else {
        return Type::Pointer;
    };
    match class {
        5 => Type::Pointer,
        8 => Type::Float { bytes: bytes as u8 },
        9 | 12 | 13 => Type::Aggregate {
            bytes: bytes as usize,
        },
        _ => {
            let signed = scope.ask(format!("(__typeof__({name}))-1 < (__typeof__({name}))1")) != 0;
            Type::Integer {
                bytes: bytes as u8,
                signed,
            }
        }
    }
}

fn descriptor_kind(keyword: &Keyword) -> Result<String, InterfaceError> {
    let how = "newfd(file), newfd(internal), newfd(socket), newfd(poll) or newfd(other)";
    match keyword.one(how)? {
        kind @ ("file" | "internal" | "socket" | "poll" | "other") => Ok(kind.to_owned()),
        _ => Err(keyword.wrong(how)),
    }
}

fn foreign(scope: &Scope, keyword: &Keyword) -> Result<Foreign, InterfaceError> {
    let how = "xpointer(none), xpointer(thread), xpointer(process), xpointer(callback) or xpointer(until(KEY)), and bsize(BYTES) behind a comma when it is no string";
    let (owner, size) = match keyword.arguments.as_slice() {
        [owner] => (*owner, None),
        [owner, size] => {
            let inner = size
                .strip_prefix("bsize(")
                .and_then(|rest| rest.strip_suffix(')'));
            (*owner, Some(inner.ok_or_else(|| keyword.wrong(how))?))
        }
        _ => return Err(keyword.wrong(how)),
    };
    let owner = match owner {
        "none" | "null" => Owner::None,
        "thread" => Owner::Thread,
        "process" => Owner::Process,
        "callback" => Owner::Callback,
        until if until.starts_with("until(") => {
            let key = until
                .strip_prefix("until(")
                .and_then(|rest| rest.strip_suffix(')'))
                .ok_or_else(|| keyword.wrong(how))?;
            Owner::Until(scope.expression(key, keyword.place)?)
        }
        _ => return Err(keyword.wrong(how)),
    };
    let size = size
        .map(|size| scope.expression(size, keyword.place))
        .transpose()?;
    Ok(Foreign { owner, size })
}
