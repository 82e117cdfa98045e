//! The stubs of a user's own interface, as C: compiled with the user's compiler and loaded behind
//! the runtime, whose functions in `hindcast_runtime.h` do the work. The same shape as the Rust
//! stubs, but for what C has no closures for.

use std::fmt::Write;

use crate::InterfaceError;
use crate::model::*;

/// The functions of the interface that are recorded, in the order of their numbers: those that get
/// a stub here, and with `by_hand` those that somebody wrote.
pub fn recorded(interface: &Interface, by_hand: bool) -> impl Iterator<Item = &Function> {
    interface
        .functions
        .iter()
        .filter(move |function| match function.code {
            Code::Library => true,
            Code::ByHand { .. } => by_hand,
            _ => false,
        })
}

/// A whole C file. `header` is what it includes for the types, `by_hand` for the functions that
/// somebody wrote.
pub fn file(
    interface: &Interface,
    header: &str,
    by_hand: Option<&str>,
) -> Result<String, InterfaceError> {
    if let Some(function) = interface
        .functions
        .iter()
        .find(|function| matches!(function.code, Code::Kernel { .. }))
    {
        return Err(InterfaceError::Contradiction {
            place: function.place.clone(),
            what: format!(
                "{}: system calls are built in; an interface of your own is about a library, so leave kernel(...) out",
                function.name
            ),
        });
    }
    let mut text = format!(
        "/* Stubs of the interface `{}`, written by hindcast-interpose from its annotated header. */\n\
         #define _GNU_SOURCE\n#include \"hindcast_runtime.h\"\n#include \"{header}\"\n\n",
        interface.name
    );
    // The header's keywords are ordinary words in the code below.
    for keyword in KEYWORDS {
        let _ = writeln!(text, "#undef {keyword}");
    }
    text.push_str(
        "#define least hindcast_least\n#define greatest hindcast_greatest\n#define length hindcast_length\n\
         #define length_within hindcast_length_within\n#define sync_key hindcast_sync_key\n\n",
    );
    let functions: Vec<_> = recorded(interface, by_hand.is_some()).collect();
    text.push_str("static const char *const hindcast_names[] = {\n");
    for function in &functions {
        let _ = writeln!(text, "    \"{}\",", function.name);
    }
    text.push_str(
        "};\nstatic unsigned hindcast_first;\n\n\
         /* Numbers are given in the order in which interfaces are loaded, which is the same in both runs. */\n\
         __attribute__((constructor(101))) static void hindcast_register(void)\n{\n    \
         hindcast_first = hindcast_interface(hindcast_names, sizeof(hindcast_names) / sizeof(*hindcast_names));\n}\n\n\
         static unsigned hindcast_number(unsigned index)\n{\n    return hindcast_first ? hindcast_first + index : 0;\n}\n",
    );
    let (mut asked, mut written) = (Vec::new(), functions.iter().enumerate().collect::<Vec<_>>());
    if let Some(by_hand) = by_hand {
        text.push_str("\nenum {\n");
        written.retain(|(index, function)| {
            let is_by_hand = function.code != Code::Library;
            if is_by_hand {
                let _ = writeln!(text, "    HINDCAST_NUMBER_{} = {index},", function.name);
                asked.push(function.name.as_str());
            }
            !is_by_hand
        });
        let _ = writeln!(text, "}};\n#include \"{by_hand}\"");
    }
    for (index, function) in written {
        stub(&mut text, function, index, &asked)?;
    }
    Ok(text)
}

/// All macros of `hindcast.h`.
pub(crate) const KEYWORDS: [&str; 32] = [
    "in",
    "out",
    "inout",
    "instr",
    "bsize",
    "always",
    "nullable",
    "unchecked",
    "strings",
    "iovec",
    "msghdr",
    "echo",
    "callback",
    "xpointer",
    "releases",
    "frees",
    "kernel",
    "trap_only",
    "block",
    "alias",
    "fails",
    "by_hand",
    "harmless",
    "newfd",
    "closefd",
    "sync",
    "prepare",
    "commit",
    "cache",
    "reproduce",
    "HINDCAST_KEYWORD",
    "HINDCAST_TEXT",
];

fn stub(
    text: &mut String,
    function: &Function,
    index: usize,
    by_hand: &[&str],
) -> Result<(), InterfaceError> {
    let name = &function.name;
    for (parameter_index, parameter) in function.parameters.iter().enumerate() {
        if let Transfer::Callback(callback) = &parameter.transfer {
            upcall(text, function, index, parameter_index, callback);
        }
    }
    let names: Vec<_> = function
        .parameters
        .iter()
        .map(|parameter| parameter.name.as_str())
        .collect();
    let call = format!("({})", names.join(", "));
    // What is called `extern` in the header is defined here.
    let signature = function.signature.trim_start_matches("extern ");
    let _ = writeln!(text, "\n{signature}\n{{");
    let _ = writeln!(
        text,
        "    static __typeof__(&{name}) hindcast_real_function;\n    \
         if (!hindcast_real_function)\n        hindcast_real_function = (__typeof__(&{name}))hindcast_next(\"{name}\", (void *)&{name});"
    );
    if function.reproduce {
        reproduced(text, function, &call);
    } else {
        let function = asks_before(text, function.clone(), by_hand)?;
        through_the_log(text, &function, index, &names, &call);
    }
    text.push_str("}\n");
    for alias in &function.aliases {
        let _ = writeln!(
            text,
            "extern __typeof__({name}) {alias} __attribute__((alias(\"{name}\")));"
        );
    }
    Ok(())
}

/// Sizes that are had from functions by hand: these are recorded calls of their own, and come
/// before this one.
fn asks_before(
    text: &mut String,
    mut function: Function,
    by_hand: &[&str],
) -> Result<Function, InterfaceError> {
    for (place, parameter) in function.parameters.iter_mut().enumerate() {
        let (Transfer::In(size) | Transfer::Out(size) | Transfer::InOut(size)) =
            &mut parameter.transfer
        else {
            continue;
        };
        if !size.value.calls(by_hand) {
            continue;
        }
        if size.uses_result {
            return Err(InterfaceError::Contradiction {
                place: parameter.place.clone(),
                what: format!(
                    "`{}`: a function by hand is asked before the call, and there is no `result` then",
                    size.text
                ),
            });
        }
        let _ = writeln!(
            text,
            "    long hindcast_asked_{place} = (long)({});",
            size.text
        );
        size.text = format!("hindcast_asked_{place}");
    }
    Ok(function)
}

/// Runs the same in both runs and leaves nothing in the log.
fn reproduced(text: &mut String, function: &Function, call: &str) {
    let name = &function.name;
    text.push_str("    struct hindcast_thread *hindcast_thread = hindcast_step_down();\n");
    let _ = match function.result {
        Type::Void => writeln!(
            text,
            "    hindcast_real_function{call};\n    hindcast_step_up(hindcast_thread);"
        ),
        _ => writeln!(
            text,
            "    __typeof__({name}{call}) result = hindcast_real_function{call};\n    hindcast_step_up(hindcast_thread);\n    return result;"
        ),
    };
}

fn through_the_log(
    text: &mut String,
    function: &Function,
    index: usize,
    names: &[&str],
    call: &str,
) {
    let name = &function.name;
    let is_void = function.result == Type::Void;
    let _ = writeln!(
        text,
        "    struct hindcast_call hindcast_call, *hindcast = &hindcast_call;"
    );
    if is_void {
        let _ = writeln!(
            text,
            "    if (!hindcast_enter(hindcast, hindcast_number({index}))) {{\n        hindcast_real_function{call};\n        return;\n    }}"
        );
    } else {
        let _ = writeln!(
            text,
            "    if (!hindcast_enter(hindcast, hindcast_number({index})))\n        return hindcast_real_function{call};"
        );
    }
    before(text, function);
    for (parameter_index, parameter) in function.parameters.iter().enumerate() {
        if let Transfer::Callback(_) = &parameter.transfer {
            let _ = writeln!(
                text,
                "    {0} = (__typeof__({0}))hindcast_stand_in(hindcast, (void *)&hindcast_upcall_{name}_{parameter_index}, (void *){0});",
                parameter.name
            );
        }
    }
    if let Some(freed) = function.frees {
        let freed = names[freed];
        let _ = writeln!(
            text,
            "    void *hindcast_freed = (void *){freed};\n    {freed} = hindcast_real(hindcast, hindcast_freed);"
        );
    }
    run(text, function, call);
    after(text, function, index);
    if let Some(foreign) = &function.foreign {
        let _ = writeln!(
            text,
            "    result = (__typeof__(result))hindcast_shadow(hindcast, (void *)result, {});",
            shadow(foreign, index, 0)
        );
    }
    for key in &function.releases {
        let _ = writeln!(
            text,
            "    hindcast_release(hindcast, (unsigned long)({}));",
            key.text
        );
    }
    if function.frees.is_some() {
        text.push_str("    hindcast_free(hindcast, hindcast_freed);\n");
    }
    text.push_str("    hindcast_leave(hindcast);\n");
    if !is_void {
        text.push_str("    return result;\n");
    }
}

/// Runs the library's function through the log, as 64 bits, and makes a result of its own type from
/// them.
fn run(text: &mut String, function: &Function, call: &str) {
    let name = &function.name;
    if function.blocks {
        text.push_str("    hindcast_blocks(hindcast);\n");
    }
    let run = match function.result {
        Type::Void => format!("hindcast_real_function{call}"),
        Type::Float { bytes: 4 } => {
            format!("hindcast_value = (long)hindcast_float_bits(hindcast_real_function{call})")
        }
        Type::Float { .. } => {
            format!("hindcast_value = (long)hindcast_double_bits(hindcast_real_function{call})")
        }
        _ => format!("hindcast_value = (long)hindcast_real_function{call}"),
    };
    let failure = match function.failure {
        Failure::Minus1 => "HINDCAST_MINUS1",
        Failure::Null => "HINDCAST_NULL",
        Failure::NonZero => "HINDCAST_NONZERO",
        Failure::Never => "HINDCAST_NEVER",
    };
    let _ = writeln!(
        text,
        "    long hindcast_value = 0;\n    if (hindcast_runs(hindcast))\n        {run};\n    \
         hindcast_value = hindcast_ran(hindcast, {failure}, hindcast_value);"
    );
    let _ = match function.result {
        Type::Void => Ok(()),
        Type::Float { bytes: 4 } => {
            writeln!(text, "    float result = hindcast_float(hindcast_value);")
        }
        Type::Float { .. } => {
            writeln!(text, "    double result = hindcast_double(hindcast_value);")
        }
        _ => writeln!(
            text,
            "    __typeof__({name}{call}) result = (__typeof__({name}{call}))hindcast_value;"
        ),
    };
}

fn before(text: &mut String, function: &Function) {
    for parameter in &function.parameters {
        let name = &parameter.name;
        let guard = if parameter.nullable {
            format!("if ({name}) ")
        } else {
            String::new()
        };
        let line = match &parameter.transfer {
            _ if parameter.unchecked => continue,
            Transfer::Value => match parameter.kind {
                Type::Float { bytes: 4 } => {
                    format!("hindcast_input(hindcast, hindcast_float_bits({name}));")
                }
                Type::Float { .. } => {
                    format!("hindcast_input(hindcast, hindcast_double_bits({name}));")
                }
                _ => format!("hindcast_input(hindcast, (unsigned long){name});"),
            },
            Transfer::In(size) | Transfer::InOut(size) => format!(
                "{guard}hindcast_input_bytes(hindcast, {name}, {});",
                size.text
            ),
            Transfer::InString => format!("hindcast_input_string(hindcast, {name});"),
            Transfer::Iovec { out: false, count } => {
                format!("hindcast_input_iovec(hindcast, {name}, {});", count.text)
            }
            Transfer::Msghdr { out: false } => {
                format!("hindcast_input_iovec(hindcast, {name}->msg_iov, {name}->msg_iovlen);")
            }
            Transfer::Callback(_) => format!("hindcast_input(hindcast, (unsigned long){name});"),
            Transfer::Out(_)
            | Transfer::Iovec { .. }
            | Transfer::Msghdr { .. }
            | Transfer::Strings(_) => continue,
        };
        let _ = writeln!(text, "    {line}");
    }
    if function.cache {
        text.push_str("    hindcast_cache(hindcast);\n");
    }
    for sync in &function.sync {
        let moment = match sync.moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        let _ = writeln!(
            text,
            "    hindcast_sync_{moment}(hindcast, (unsigned long)({}));",
            sync.key.text
        );
    }
    // A key that the call itself gives is nobody's before.
    if let Some(prepare) = &function.prepare
        && !reads_what_is_given(function, &prepare.key.value)
    {
        let _ = writeln!(
            text,
            "    hindcast_sync_before(hindcast, (unsigned long)({}));",
            prepare.key.text
        );
    }
    if let Some(commit) = &function.commit {
        let _ = writeln!(
            text,
            "    hindcast_sync_after(hindcast, (unsigned long)({}));",
            commit.key.text
        );
    }
}

/// Whether a value stands in memory that the call writes.
fn reads_what_is_given(function: &Function, value: &Value) -> bool {
    let is_given = |part: &Value| match part {
        Value::Parameter(name) => function
            .parameter(name)
            .is_some_and(|(_, parameter)| matches!(parameter.transfer, Transfer::Out(_))),
        _ => false,
    };
    value.any(&|part| matches!(part, Value::Load { address, .. } if address.any(&is_given)))
}

fn after(text: &mut String, function: &Function, index: usize) {
    let condition = match function.failure {
        Failure::Minus1 => Some("result != -1"),
        Failure::Null => Some("result != 0"),
        Failure::NonZero => Some("result == 0"),
        Failure::Never => None,
    };
    let mut put = |line: String, always: bool| {
        let _ = match condition.filter(|_| !always) {
            Some(condition) => writeln!(text, "    if ({condition})\n        {line}"),
            None => writeln!(text, "    {line}"),
        };
    };
    for (place, parameter) in function.parameters.iter().enumerate() {
        for line in outputs(function, index, place, parameter) {
            put(line, parameter.always);
        }
    }
    for line in effects(function) {
        put(line, false);
    }
}

/// What the call gave through a parameter.
fn outputs(function: &Function, index: usize, place: usize, parameter: &Parameter) -> Vec<String> {
    let name = &parameter.name;
    let mut lines = Vec::new();
    match &parameter.transfer {
        Transfer::Out(_)
            if function
                .prepare
                .as_ref()
                .is_some_and(|prepare| prepare.buffer == place) => {}
        Transfer::Out(size) | Transfer::InOut(size) => {
            let guard = if parameter.nullable {
                format!("if ({name}) ")
            } else {
                String::new()
            };
            lines.push(format!(
                "{guard}hindcast_out(hindcast, {name}, {});",
                size.text
            ));
            if let Some(foreign) = &parameter.foreign {
                lines.push(format!(
                    "if ({name}) *{name} = (__typeof__(*{name}))hindcast_shadow(hindcast, (void *)*{name}, {});",
                    shadow(foreign, index, place + 1)
                ));
            }
        }
        Transfer::Iovec { out: true, count } => lines.push(format!(
            "hindcast_out_iovec(hindcast, {name}, {}, result);",
            count.text
        )),
        Transfer::Msghdr { out: true } => {
            lines.push(format!("hindcast_out_msghdr(hindcast, {name}, result);"));
        }
        _ => {}
    }
    if let Some(kind) = &parameter.new_descriptors
        && let Transfer::Out(size) = &parameter.transfer
    {
        lines.push(format!(
            "for (unsigned long hindcast_i = 0; hindcast_i < ({}) / sizeof(int); hindcast_i++) hindcast_opened(((int *){name})[hindcast_i], {});",
            size.text,
            descriptor(kind)
        ));
    }
    lines.extend(parameter.echo.iter().map(|echo| {
        let (descriptor, size) = (&echo.descriptor.text, &echo.size.text);
        format!("hindcast_echo(hindcast, {descriptor}, {name}, {size});")
    }));
    lines
}

/// What a call that succeeded does beyond its parameters.
fn effects(function: &Function) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(kind) = &function.new_descriptor {
        lines.push(format!(
            "hindcast_opened((int)result, {});",
            descriptor(kind)
        ));
    }
    if let Some(closes) = function.closes {
        let name = &function.parameters[closes].name;
        lines.push(format!("hindcast_closed((int){name});"));
    }
    if let Some(prepare) = &function.prepare {
        let buffer = &function.parameters[prepare.buffer];
        let (Transfer::Out(size) | Transfer::InOut(size)) = &buffer.transfer else {
            unreachable!("the reader checked")
        };
        lines.push(format!(
            "hindcast_prepare(hindcast, (unsigned long)({}), {}, {});",
            prepare.key.text, buffer.name, size.text
        ));
    }
    if let Some(commit) = &function.commit {
        lines.push(format!(
            "hindcast_commit(hindcast, (unsigned long)({}), {});",
            commit.key.text, commit.size.text
        ));
    }
    lines
}

fn descriptor(kind: &str) -> String {
    format!("HINDCAST_{}", kind.to_uppercase())
}

/// The last arguments of `hindcast_shadow`. The size may ask the library, so it is computed while
/// recording only.
fn shadow(foreign: &Foreign, function: usize, parameter: usize) -> String {
    let size = match &foreign.size {
        None => "-1".to_owned(),
        Some(size) => format!(
            "hindcast_is_recording(hindcast) ? hindcast_greatest(0, {}) : 0",
            size.text
        ),
    };
    let (owner, key) = match &foreign.owner {
        Owner::None => ("NONE", "0"),
        Owner::Thread => ("THREAD", "0"),
        Owner::Process => ("PROCESS", "0"),
        Owner::Callback => ("CALLBACK", "0"),
        Owner::Until(key) => ("UNTIL", key.text.as_str()),
    };
    format!(
        "{size}, HINDCAST_OWNER_{owner}, (unsigned long)({key}), (unsigned long)hindcast_number({function}) << 8 | {parameter}"
    )
}

fn upcall(
    text: &mut String,
    function: &Function,
    index: usize,
    parameter: usize,
    callback: &Callback,
) {
    let mut parameters: Vec<_> = callback
        .parameters
        .iter()
        .map(|parameter| parameter.text.clone())
        .collect();
    parameters.push("double hindcast_stand_in_number".to_owned());
    let result = match callback.result {
        Type::Void => "void",
        Type::Pointer => "void *",
        _ => "int ",
    };
    let _ = writeln!(
        text,
        "\nstatic {result} hindcast_upcall_{}_{parameter}({})\n{{\n    \
         struct hindcast_upcall *hindcast = hindcast_upcall(hindcast_number({index}), {parameter}, hindcast_stand_in_number, {});",
        function.name,
        parameters.join(", "),
        callback.result.bytes()
    );
    for parameter in &callback.parameters {
        let name = &parameter.name;
        let _ = match &parameter.transfer {
            Transfer::In(size) => writeln!(
                text,
                "    hindcast_upcall_bytes(hindcast, {name}, {name} ? ({}) : 0);",
                size.text
            ),
            Transfer::InString => writeln!(text, "    hindcast_upcall_string(hindcast, {name});"),
            Transfer::Strings(count) => writeln!(
                text,
                "    hindcast_upcall_strings(hindcast, {name}, {});",
                count.text
            ),
            _ => writeln!(
                text,
                "    hindcast_upcall_value(hindcast, (unsigned long){name});"
            ),
        };
    }
    let _ = match callback.result {
        Type::Void => writeln!(text, "    hindcast_upcall_run(hindcast);\n}}"),
        _ => writeln!(
            text,
            "    return ({result})hindcast_upcall_run(hindcast);\n}}"
        ),
    };
}
