//! What only a C compiler knows: sizes, offsets, signedness, constants.
//!
//! Reading a header asks questions, each a constant C expression in the scope of one function's
//! parameters. Questions without an answer get a made-up one; the compiler then answers all of them
//! in one run and the header is read again, until nothing new is asked. So the reader is written as
//! if every answer were there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::InterfaceError;
use crate::source::{Source, compiler};

#[derive(Default)]
pub(crate) struct Oracle {
    answers: BTreeMap<(usize, String), i64>,
    open: RefCell<Vec<(usize, String)>>,
}

impl Oracle {
    /// The value of a constant C expression in the scope of the n-th prototype, once it is known.
    pub fn ask(&self, prototype: usize, question: String) -> Option<i64> {
        let key = (prototype, question);
        if let Some(answer) = self.answers.get(&key) {
            return Some(*answer);
        }
        let mut open = self.open.borrow_mut();
        if !open.contains(&key) {
            open.push(key);
        }
        None
    }

    /// Whether everything that was asked had been answered.
    pub fn is_satisfied(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Has the compiler answer what is open.
    pub fn answer(
        &mut self,
        source: &Source,
        header: &std::path::Path,
    ) -> Result<(), InterfaceError> {
        let open = std::mem::take(&mut *self.open.borrow_mut());
        let program = program(source, &open);
        let assembly = compile(&program, header)?;
        for (key, answer) in open.into_iter().zip(values(&assembly)) {
            self.answers.insert(key, answer);
        }
        Ok(())
    }
}

/// The header with each prototype turned into a function that holds the answers as a table.
fn program(source: &Source, open: &[(usize, String)]) -> String {
    let plain = source.plain();
    let mut program = String::with_capacity(plain.len() + open.len() * 80);
    let mut copied = 0;
    for (number, prototype) in source.prototypes.iter().enumerate() {
        if prototype.declaration.start < copied {
            continue; // A second declarator of the same declaration.
        }
        program.push_str(&plain[copied..prototype.declaration.start]);
        copied = prototype.declaration.end;
        if !open.iter().any(|(asked, _)| *asked == number) {
            continue;
        }
        let before = &plain[prototype.span.start..prototype.name_span.start];
        let after = &plain[prototype.name_span.end..prototype.span.end];
        let arguments: Vec<_> = prototype
            .parameters
            .iter()
            .map(|parameter| parameter.name.as_str())
            .collect();
        let call = format!("hindcast_function_{number}({})", arguments.join(", "));
        write!(program, "{before} hindcast_function_{number}{after} {{ ")
            .expect("writing to a string");
        if !arguments.contains(&"result") {
            write!(
                program,
                "__typeof__(__builtin_choose_expr(__builtin_types_compatible_p(__typeof__({call}), void), 0, {call})) result; "
            )
            .expect("writing to a string");
        }
        for (index, (asked, question)) in open.iter().enumerate() {
            if *asked == number {
                let question = question.replace('\n', " ");
                write!(
                    program,
                    "static const long long hindcast_answer_{index}[] __attribute__((used)) = {{ 0x68696e6463617374, (long long)({question}) }}; "
                )
                .expect("writing to a string");
            }
        }
        program.push('}');
    }
    program.push_str(&plain[copied..]);
    program
}

fn compile(program: &str, header: &std::path::Path) -> Result<String, InterfaceError> {
    let no_compiler = |source| InterfaceError::NoCompiler {
        command: compiler(),
        source,
    };
    let mut child = Command::new(compiler())
        .args(
            "-x cpp-output -std=gnu11 -w -O0 -S -o - -fno-asynchronous-unwind-tables -".split(' '),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_compiler)?;
    let mut input = child.stdin.take().expect("the input is a pipe");
    let text = program.to_owned();
    // The compiler reads everything before it writes, but its messages may fill a pipe on the way.
    let writer = std::thread::spawn(move || {
        let _ = input.write_all(text.as_bytes());
    });
    let output = child.wait_with_output().map_err(no_compiler)?;
    let _ = writer.join();
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(InterfaceError::Compiler {
            header: header.into(),
            message: readable(&message),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The compiler's errors without the functions that were made up for it.
fn readable(message: &str) -> String {
    // Columns count what was made up, too.
    let without_column = |line: &str| {
        let (place, what) = line.split_once(": error:")?;
        let (place, _column) = place.rsplit_once(':')?;
        Some(format!("{place}: error:{what}"))
    };
    let mut errors: Vec<_> = message.lines().filter_map(without_column).collect();
    errors.dedup();
    errors.truncate(5);
    if errors.is_empty() {
        message.to_owned()
    } else {
        errors.join("\n")
    }
}

/// The answers in assembly text, by number.
fn values(assembly: &str) -> Vec<i64> {
    let mut values = BTreeMap::new();
    let mut lines = assembly.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("hindcast_answer_") else {
            continue;
        };
        let Some((index, _)) = rest.split_once(['.', ':']) else {
            continue;
        };
        let (Ok(index), Some(_magic), Some(value)) =
            (index.parse::<usize>(), lines.next(), lines.next())
        else {
            continue;
        };
        let value = match value.split_once(char::is_whitespace) {
            Some((".quad" | ".xword" | ".dword", number)) => parse_number(number.trim()),
            Some((".zero", _)) => 0,
            _ => panic!("the compiler's assembly has `{value}` where a number belongs"),
        };
        values.insert(index, value);
    }
    values.into_values().collect()
}

fn parse_number(text: &str) -> i64 {
    text.parse::<i64>()
        .or_else(|_| text.parse::<u64>().map(|number| number as i64))
        .unwrap_or_else(|_| panic!("the compiler answers `{text}`, which is no number"))
}
