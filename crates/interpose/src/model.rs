//! What an interface is once its annotations are understood: functions, which way each parameter
//! goes, and how the call runs.

use std::fmt;
use std::path::PathBuf;

/// The annotated prototypes of one header.
#[derive(Debug, Clone, PartialEq)]
pub struct Interface {
    /// The header's file name without `.h`: what `--interface NAME` chooses.
    pub name: String,
    pub header: PathBuf,
    /// In the order of the header. Numbers of functions follow from it.
    pub functions: Vec<Function>,
}

/// Where in the sources of an interface something was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub file: String,
    pub line: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    pub name: String,
    pub place: Place,
    /// The result's type and the parameters as C text, for generated C and for tables.
    pub signature: String,
    pub result: Type,
    pub parameters: Vec<Parameter>,
    /// The C prototype ends in `...`. Only functions by hand and harmless ones may.
    pub variadic: bool,
    pub code: Code,
    /// Other symbols with the same prototype.
    pub aliases: Vec<String>,
    /// May wait for somebody else.
    pub blocks: bool,
    pub failure: Failure,
    /// The result is a new descriptor of this kind.
    pub new_descriptor: Option<String>,
    /// The parameter whose descriptor is closed.
    pub closes: Option<usize>,
    pub sync: Vec<Sync>,
    pub cache: bool,
    pub reproduce: bool,
    pub prepare: Option<Prepare>,
    pub commit: Option<Commit>,
    /// The result points into memory of the library.
    pub foreign: Option<Foreign>,
    /// Copies that were made under these keys end with the call.
    pub releases: Vec<Expression>,
    /// The parameter that gives back what a function with `xpointer(none)` handed out.
    pub frees: Option<usize>,
}

/// Who supplies the code of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// Generated: one system call.
    Kernel { call: String, exported: bool },
    /// Generated: the next definition of the symbol.
    Library,
    /// Somebody wrote it. With a system call when the trap can arrive there, too.
    ByHand { call: Option<String> },
    /// No code is needed.
    Harmless,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub place: Place,
    /// The declaration without annotations: `void *buf`.
    pub text: String,
    pub kind: Type,
    pub transfer: Transfer,
    pub nullable: bool,
    pub unchecked: bool,
    /// `out` data that is there even when the call fails.
    pub always: bool,
    /// The memory behind an out parameter holds pointers of the library.
    pub foreign: Option<Foreign>,
    pub echo: Option<Echo>,
    /// Each `int` that is written here is a new descriptor of this kind.
    pub new_descriptors: Option<String>,
}

/// What crosses the interface through a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Transfer {
    /// The value itself and nothing else.
    Value,
    /// So many bytes are read behind the pointer.
    In(Expression),
    /// A NUL-terminated string is read.
    InString,
    /// So many bytes are written behind the pointer.
    Out(Expression),
    InOut(Expression),
    /// An array of so many NUL-terminated strings; parameters of callbacks only.
    Strings(Expression),
    Iovec {
        out: bool,
        count: Expression,
    },
    Msghdr {
        out: bool,
    },
    Callback(Callback),
}

/// A function of the program that the library calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Callback {
    pub lasting: Lasting,
    pub result: Type,
    pub parameters: Vec<Parameter>,
}

/// For how long the library may call back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    During,
    Later,
}

/// What a C type is to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Void,
    Integer {
        bytes: u8,
        signed: bool,
    },
    Float {
        bytes: u8,
    },
    Pointer,
    /// A structure by value. Only in functions that need no stub.
    Aggregate {
        bytes: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    Minus1,
    Null,
    NonZero,
    Never,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sync {
    pub key: Expression,
    pub moment: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Before,
    After,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Prepare {
    pub key: Expression,
    pub buffer: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    pub key: Expression,
    pub size: Expression,
}

/// Memory of the library that the program gets to see as a copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreign {
    pub owner: Owner,
    /// None: up to and including a NUL.
    pub size: Option<Expression>,
}

/// How long a foreign pointer stays good, R2's `xpointer(kind)`.
#[derive(Debug, Clone, PartialEq)]
pub enum Owner {
    /// A new one each time, freed by the program.
    None,
    /// One per thread, overwritten by the next call.
    Thread,
    /// One for all.
    Process,
    /// Until a call releases the key.
    Until(Expression),
    /// Until the running callback returns.
    Callback,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Echo {
    pub descriptor: Expression,
    pub size: Expression,
}

/// A C expression over the parameters and `result`: the text as it was written, and what it
/// computes.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    pub text: String,
    pub value: Value,
    /// It names `result`, so it has no value before the call ran.
    pub uses_result: bool,
}

/// An expression with everything about C's types resolved to numbers; all arithmetic is in 64 bits.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Constant(i64),
    Parameter(String),
    Result,
    /// The memory at an address.
    Load {
        address: Box<Value>,
        bytes: u8,
        signed: bool,
    },
    Unary(Unary, Box<Value>),
    Binary(Binary, Box<Value>, Box<Value>),
    Conditional(Box<Value>, Box<Value>, Box<Value>),
    /// A cast to a narrower integer.
    Cast {
        value: Box<Value>,
        bytes: u8,
        signed: bool,
    },
    /// `least`, `greatest`, `length`, or a function of the runtime's own.
    Call(String, Vec<Value>),
}

impl Value {
    /// Whether it, or a value that it is made of, is such a one.
    pub fn any(&self, is: &dyn Fn(&Value) -> bool) -> bool {
        is(self)
            || match self {
                Value::Constant(_) | Value::Parameter(_) | Value::Result => false,
                Value::Load { address: value, .. }
                | Value::Unary(_, value)
                | Value::Cast { value, .. } => value.any(is),
                Value::Binary(_, left, right) => left.any(is) || right.any(is),
                Value::Conditional(condition, yes, no) => {
                    condition.any(is) || yes.any(is) || no.any(is)
                }
                Value::Call(_, arguments) => arguments.iter().any(|argument| argument.any(is)),
            }
    }

    /// Whether it takes a call of one of these functions.
    pub fn calls(&self, names: &[&str]) -> bool {
        self.any(&|value| matches!(value, Value::Call(name, _) if names.contains(&name.as_str())))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    Negate,
    Complement,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    ShiftLeft,
    ShiftRight,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    Equal,
    NotEqual,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
}

impl Interface {
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| {
            function.name == name || function.aliases.iter().any(|alias| alias == name)
        })
    }
}

impl Type {
    pub fn bytes(self) -> usize {
        match self {
            Type::Void => 0,
            Type::Integer { bytes, .. } | Type::Float { bytes } => bytes.into(),
            Type::Pointer => 8,
            Type::Aggregate { bytes } => bytes,
        }
    }
}

impl Function {
    /// The symbol itself and its aliases.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }

    pub fn parameter(&self, name: &str) -> Option<(usize, &Parameter)> {
        self.parameters
            .iter()
            .enumerate()
            .find(|(_, parameter)| parameter.name == name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
