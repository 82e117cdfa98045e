//! What stands beside a function, and what it can be together with.

use super::Reading;
use super::keyword::{Keyword, descriptor_kind, foreign};
use super::parameter::machine_type;
use crate::InterfaceError;
use crate::expression::Scope;
use crate::model::*;
use crate::source;

impl Reading<'_> {
    pub fn function(&self) -> Result<Function, InterfaceError> {
        let prototype = self.prototype;
        let scope = Scope::new(self.source, self.oracle, self.number, prototype);
        let keywords: Vec<_> = prototype.annotations.iter().map(Keyword::parse).collect();
        let code = self.code(&keywords)?;
        let generated = matches!(code, Code::Kernel { .. } | Code::Library);
        let (mut result, mut parameters) = (Type::Void, Vec::new());
        if generated {
            self.can_be_generated(&code)?;
            result = self.result_type(&scope)?;
            for written in &prototype.parameters {
                parameters.push(self.parameter(&scope, written)?);
            }
        }
        let mut function = Function {
            name: prototype.name.clone(),
            place: prototype.place.clone(),
            signature: self.signature(),
            result,
            parameters,
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
                _ => self.about_data(&scope, keyword, &mut function)?,
            }
        }
        free_of_contradictions(&function)?;
        Ok(function)
    }

    fn contradiction(&self, what: &str) -> InterfaceError {
        contradiction(&self.prototype.place, what)
    }

    fn code(&self, keywords: &[Keyword]) -> Result<Code, InterfaceError> {
        let has = |name: &str| keywords.iter().any(|keyword| keyword.name == name);
        let kernel = keywords.iter().find(|keyword| keyword.name == "kernel");
        let call = kernel
            .map(|keyword| keyword.one("kernel(NAME) for the system call SYS_NAME"))
            .transpose()?
            .map(str::to_owned);
        if has("trap_only") && call.is_none() {
            return Err(self.contradiction(
                "trap_only without kernel(NAME): the trap knows system calls, not symbols",
            ));
        }
        match (call, has("by_hand"), has("harmless")) {
            (call, true, false) => Ok(Code::ByHand { call }),
            (Some(call), false, false) => Ok(Code::Kernel {
                call,
                exported: !has("trap_only"),
            }),
            (None, false, true) => Ok(Code::Harmless),
            (None, false, false) => Ok(Code::Library),
            (_, _, true) => Err(self
                .contradiction("a harmless function needs no code, so neither kernel nor by_hand")),
        }
    }

    fn can_be_generated(&self, code: &Code) -> Result<(), InterfaceError> {
        let prototype = self.prototype;
        if prototype.variadic {
            return Err(InterfaceError::Variadic {
                place: prototype.place.clone(),
                name: prototype.name.clone(),
            });
        }
        let mut parameters = prototype.parameters.iter();
        if let Some(nameless) = parameters.find(|parameter| !parameter.named) {
            return Err(nameless.no_name());
        }
        match (code, prototype.parameters.get(6)) {
            (Code::Kernel { .. }, Some(extra)) => Err(contradiction(
                &extra.place,
                "a system call has at most six arguments",
            )),
            _ => Ok(()),
        }
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
        let call = format!(
            "hindcast_function_{}({})",
            self.number,
            scope.names.join(", ")
        );
        let is_void = format!("__builtin_types_compatible_p(__typeof__({call}), void)");
        if scope.ask(is_void) != 0 {
            return Ok(Type::Void);
        }
        // Inside the question's own function `result` has the result's type.
        let name = if scope.names.contains(&"result") {
            call.as_str()
        } else {
            "result"
        };
        match machine_type(scope, name) {
            Type::Aggregate { .. } if self.oracle.is_satisfied() => Err(InterfaceError::ByValue {
                place: self.prototype.place.clone(),
                what: format!("the result of {}", self.prototype.name),
            }),
            kind => Ok(kind),
        }
    }

    fn about_data(
        &self,
        scope: &Scope,
        keyword: &Keyword,
        function: &mut Function,
    ) -> Result<(), InterfaceError> {
        match keyword.name {
            "fails" => function.failure = failure(keyword)?,
            "newfd" => function.new_descriptor = Some(descriptor_kind(keyword)?),
            "closefd" => {
                let name = keyword.one("closefd(PARAMETER)")?;
                let (index, _) = function
                    .parameter(name)
                    .ok_or_else(|| keyword.wrong("the name of a parameter"))?;
                function.closes = Some(index);
            }
            "sync" => function.sync.push(sync(scope, keyword)?),
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
                function.foreign = Some(foreign(scope, keyword)?);
            }
            "in" | "out" | "inout" | "instr" | "bsize" | "nullable" | "unchecked" | "iovec"
            | "msghdr" | "echo" | "callback" | "strings" | "always" => {
                return Err(
                    keyword.wrong("this before a parameter; here it stands beside the function")
                );
            }
            _ => return Err(keyword.wrong("a keyword of hindcast.h")),
        }
        Ok(())
    }
}

fn contradiction(place: &Place, what: &str) -> InterfaceError {
    InterfaceError::Contradiction {
        place: place.clone(),
        what: what.to_owned(),
    }
}

fn failure(keyword: &Keyword) -> Result<Failure, InterfaceError> {
    let how = "fails(minus1), fails(null), fails(nonzero) or fails(never)";
    match keyword.one(how)? {
        "minus1" => Ok(Failure::Minus1),
        "null" => Ok(Failure::Null),
        "nonzero" => Ok(Failure::NonZero),
        "never" => Ok(Failure::Never),
        _ => Err(keyword.wrong(how)),
    }
}

fn sync(scope: &Scope, keyword: &Keyword) -> Result<Sync, InterfaceError> {
    let (key, moment) = match keyword.arguments.as_slice() {
        [key] | [key, "before"] => (key, Moment::Before),
        [key, "after"] => (key, Moment::After),
        _ => return Err(keyword.wrong("sync(KEY), sync(KEY, before) or sync(KEY, after)")),
    };
    let key = scope.expression(key, keyword.place)?;
    match key.uses_result {
        true => Err(keyword.wrong("a key that is known before the call, without `result`")),
        false => Ok(Sync { key, moment }),
    }
}

/// Refuses keywords that exclude each other.
fn free_of_contradictions(function: &Function) -> Result<(), InterfaceError> {
    let any = |of: fn(&Transfer) -> bool| {
        let mut parameters = function.parameters.iter();
        parameters.any(|parameter| of(&parameter.transfer))
    };
    let refused = |what: &str| Err(contradiction(&function.place, what));
    if let Some(prepare) = &function.prepare {
        let buffer = &function.parameters[prepare.buffer];
        if !matches!(buffer.transfer, Transfer::Out(_)) {
            return refused(&format!(
                "prepare: `{}` must be an out parameter with bsize",
                buffer.name
            ));
        }
    }
    let gives = any(|transfer| {
        matches!(
            transfer,
            Transfer::Out(_)
                | Transfer::InOut(_)
                | Transfer::Iovec { out: true, .. }
                | Transfer::Msghdr { out: true }
        )
    });
    if function.cache && (gives || function.foreign.is_some() || function.commit.is_some()) {
        return refused("cache is for functions that give nothing but their result");
    }
    if function.reproduce && any(|transfer| matches!(transfer, Transfer::Callback(_))) {
        return refused(
            "reproduce runs the function again, callbacks and all: leave the keyword callback out",
        );
    }
    Ok(())
}
