//! Parameters, of functions and of callbacks: their types and what crosses the interface behind
//! them.

use super::Reading;
use super::keyword::{Keyword, descriptor_kind, foreign};
use crate::InterfaceError;
use crate::expression::{Scope, multiply};
use crate::model::*;
use crate::source::{Behind, Pointee, Written};

/// The keywords that say which way data goes.
const DIRECTIONS: [&str; 8] = [
    "in", "out", "inout", "instr", "iovec", "msghdr", "callback", "strings",
];

impl Written {
    pub(super) fn no_name(&self) -> InterfaceError {
        InterfaceError::NoName {
            place: self.place.clone(),
            text: self.text.clone(),
        }
    }

    fn ambiguous(&self, choices: &'static str) -> InterfaceError {
        InterfaceError::Ambiguous {
            place: self.place.clone(),
            text: self.text.clone(),
            choices,
        }
    }

    /// The size of what the pointer leads to, as C's types tell it.
    fn whole(&self, scope: &Scope, pointee: Pointee) -> Result<Expression, InterfaceError> {
        if matches!(pointee.kind, Behind::Void | Behind::Unknown) {
            return Err(InterfaceError::NoSize {
                place: self.place.clone(),
                text: self.text.clone(),
            });
        }
        let one = scope.ask(format!("sizeof(*({}))", self.name));
        let (count, text) = match &self.array {
            Some(count) => (
                scope.ask(count.clone()),
                format!("sizeof(*{}) * ({count})", self.name),
            ),
            None => (1, format!("sizeof(*{})", self.name)),
        };
        Ok(Expression {
            text,
            value: multiply(Value::Constant(count), one),
            uses_result: false,
        })
    }
}

impl Reading<'_> {
    pub fn parameter(&self, scope: &Scope, written: &Written) -> Result<Parameter, InterfaceError> {
        if !written.named {
            return Err(written.no_name());
        }
        let keywords: Vec<_> = written.annotations.iter().map(Keyword::parse).collect();
        let has = |name: &str| keywords.iter().any(|keyword| keyword.name == name);
        let mut parameter = Parameter {
            name: written.name.clone(),
            place: written.place.clone(),
            text: written.text.clone(),
            kind: self.kind(scope, written)?,
            transfer: self.transfer(scope, written, &keywords)?,
            nullable: has("nullable"),
            unchecked: has("unchecked"),
            always: has("always"),
            foreign: None,
            echo: None,
            new_descriptors: None,
        };
        for keyword in &keywords {
            match keyword.name {
                "bsize" | "nullable" | "unchecked" | "always" => {}
                direction if DIRECTIONS.contains(&direction) => {}
                "echo" => {
                    let (descriptor, size) = keyword.two("echo(DESCRIPTOR, BYTES)")?;
                    parameter.echo = Some(Echo {
                        descriptor: scope.expression(descriptor, keyword.place)?,
                        size: scope.expression(size, keyword.place)?,
                    });
                }
                "newfd" => parameter.new_descriptors = Some(descriptor_kind(keyword)?),
                "xpointer" if matches!(parameter.transfer, Transfer::Out(_)) => {
                    parameter.foreign = Some(foreign(scope, keyword)?);
                }
                "xpointer" => {
                    return Err(keyword
                        .wrong("out xpointer(...): the pointer comes out through this parameter"));
                }
                _ => return Err(keyword.wrong(
                    "a keyword for parameters; this one stands beside the function, if it is one",
                )),
            }
        }
        Ok(parameter)
    }

    fn kind(&self, scope: &Scope, written: &Written) -> Result<Type, InterfaceError> {
        let kind = match (written.pointer, scope.typed) {
            (Some(_), _) => Type::Pointer,
            (None, true) => machine_type(scope, &written.name),
            // The parameters of callbacks are not in the oracle's scope; their types are.
            (None, false) => {
                let text = written.text.trim_end();
                let name = text.strip_suffix(&written.name).unwrap_or(text);
                machine_type(scope, &format!("*({name} *)0"))
            }
        };
        match kind {
            Type::Aggregate { .. } if self.oracle.is_satisfied() => Err(InterfaceError::ByValue {
                place: written.place.clone(),
                what: format!("parameter `{}`", written.name),
            }),
            Type::Float { .. } if !scope.typed => Err(InterfaceError::Keyword {
                place: written.place.clone(),
                written: written.text.clone(),
                instead: "a whole number or a pointer as the parameter of a callback".to_owned(),
            }),
            kind => Ok(kind),
        }
    }

    fn transfer(
        &self,
        scope: &Scope,
        written: &Written,
        keywords: &[Keyword],
    ) -> Result<Transfer, InterfaceError> {
        let find = |name: &str| keywords.iter().find(|keyword| keyword.name == name);
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
        let mut directions = keywords
            .iter()
            .filter(|keyword| DIRECTIONS.contains(&keyword.name));
        let direction = directions.next();
        if let Some(second) = directions.next() {
            return Err(second.wrong("one direction per parameter; inout for both"));
        }
        let Some(pointee) = written.pointer else {
            let mut keywords = keywords.iter();
            return match keywords.find(|keyword| !matches!(keyword.name, "in" | "unchecked")) {
                Some(keyword) => {
                    Err(keyword.wrong(&format!("nothing: `{}` is no pointer", written.text)))
                }
                None => Ok(Transfer::Value),
            };
        };
        let sized = || {
            size.clone()
                .map_or_else(|| written.whole(scope, pointee), Ok)
        };
        let Some(direction) = direction.filter(|direction| direction.name != "in") else {
            return match size {
                Some(size) => Ok(Transfer::In(size)),
                None if find("unchecked").is_some() => Ok(Transfer::Value),
                None => unsized_in(scope, written, pointee, direction.is_some()),
            };
        };
        match direction.name {
            "out" => Ok(Transfer::Out(sized()?)),
            "inout" => Ok(Transfer::InOut(sized()?)),
            "instr" => Ok(Transfer::InString),
            "strings" => strings(scope, direction),
            "iovec" => iovec(scope, direction),
            "msghdr" => match direction.one("msghdr(in) or msghdr(out)")? {
                "in" => Ok(Transfer::Msghdr { out: false }),
                "out" => Ok(Transfer::Msghdr { out: true }),
                _ => Err(direction.wrong("msghdr(in) or msghdr(out)")),
            },
            "callback" => self.callback(scope, written, direction),
            other => unreachable!("{other} is no direction"),
        }
    }

    fn callback(
        &self,
        scope: &Scope,
        written: &Written,
        keyword: &Keyword,
    ) -> Result<Transfer, InterfaceError> {
        let how = "callback(during) or callback(later)";
        let lasting = match keyword.one(how)? {
            "during" => Lasting::During,
            "later" => Lasting::Later,
            _ => return Err(keyword.wrong(how)),
        };
        let of_callback = written.parameters.as_ref().ok_or_else(|| {
            keyword.wrong("a parameter whose type is written out: int (*compare)(in bsize(8) const void *a, ...)")
        })?;
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
        let parameters = of_callback
            .iter()
            .map(|written| self.parameter(&inner, written))
            .collect::<Result<_, _>>()?;
        let result = match written.text.split('(').next().unwrap_or("").trim() {
            "void" => Type::Void,
            "int" => Type::Integer {
                bytes: 4,
                signed: true,
            },
            text if text.ends_with('*') => Type::Pointer,
            _ => return Err(keyword.wrong("a callback that returns void, int or a pointer")),
        };
        Ok(Transfer::Callback(Callback {
            lasting,
            result,
            parameters,
        }))
    }
}

/// A pointer without a size: what is read behind it is as large as its type, where there is one.
fn unsized_in(
    scope: &Scope,
    written: &Written,
    pointee: Pointee,
    says_in: bool,
) -> Result<Transfer, InterfaceError> {
    match pointee.kind {
        Behind::Void | Behind::Unknown => Ok(Transfer::Value),
        Behind::Char => {
            Err(written
                .ambiguous("instr for a string, bsize(BYTES) for bytes, unchecked for neither"))
        }
        Behind::Known if !scope.typed => Ok(Transfer::Value),
        Behind::Known if pointee.constant || says_in => {
            Ok(Transfer::In(written.whole(scope, pointee)?))
        }
        Behind::Known => {
            Err(written.ambiguous("in, out or inout, and bsize(BYTES) when it is more than one"))
        }
    }
}

fn strings(scope: &Scope, keyword: &Keyword) -> Result<Transfer, InterfaceError> {
    let count = keyword.one("strings(COUNT)")?;
    if scope.typed {
        return Err(keyword.wrong("strings only for parameters of callbacks"));
    }
    Ok(Transfer::Strings(scope.expression(count, keyword.place)?))
}

fn iovec(scope: &Scope, keyword: &Keyword) -> Result<Transfer, InterfaceError> {
    let how = "iovec(in, COUNT) or iovec(out, COUNT)";
    let (way, count) = keyword.two(how)?;
    let out = match way {
        "in" => false,
        "out" => true,
        _ => return Err(keyword.wrong(how)),
    };
    let count = scope.expression(count, keyword.place)?;
    Ok(Transfer::Iovec { out, count })
}

/// What the compiler says an expression's type is to the machine.
pub(super) fn machine_type(scope: &Scope, expression: &str) -> Type {
    let bytes = scope.ask(format!("sizeof({expression})"));
    let Some(class) = scope.answer(format!("__builtin_classify_type({expression})")) else {
        return Type::Pointer;
    };
    match class {
        5 => Type::Pointer,
        8 => Type::Float { bytes: bytes as u8 },
        9 | 12 | 13 => Type::Aggregate {
            bytes: bytes as usize,
        },
        _ => {
            let of = format!("__typeof__({expression})");
            Type::Integer {
                bytes: bytes as u8,
                signed: scope.ask(format!("({of})-1 < ({of})1")) != 0,
            }
        }
    }
}
