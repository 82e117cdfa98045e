//! From a header to syntax: the C preprocessor, then `lang-c`, then the prototypes that the header
//! itself declares.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;

use lang_c::ast::{
    ArraySize, Declaration, DeclarationSpecifier, Declarator, DeclaratorKind, DerivedDeclarator,
    Ellipsis, Expression, Extension, ExternalDeclaration, FunctionDeclarator, ParameterDeclaration,
    PointerQualifier, StorageClassSpecifier, TypeQualifier, TypeSpecifier,
};
use lang_c::driver::{Config, Flavor, parse_preprocessed};
use lang_c::span::{Node, Span};

use crate::InterfaceError;
use crate::model::Place;

/// A preprocessed header and what of it matters here.
pub(crate) struct Source {
    pub text: String,
    pub prototypes: Vec<Prototype>,
    /// Every name of a type, so that a single expression can be parsed on its own.
    pub typedefs: HashSet<String>,
}

struct Line {
    offset: usize,
    file: std::rc::Rc<str>,
    line: usize,
}

/// A function declaration as it was written.
pub(crate) struct Prototype {
    pub name: String,
    pub name_span: Span,
    pub place: Place,
    /// From the start of the declaration to the `)` that closes the parameters.
    pub span: Span,
    /// The whole declaration with its `;`.
    pub declaration: Span,
    pub annotations: Vec<Annotation>,
    pub parameters: Vec<Written>,
    pub variadic: bool,
}

/// A parameter as it was written.
pub(crate) struct Written {
    pub name: String,
    pub named: bool,
    pub place: Place,
    pub text: String,
    pub annotations: Vec<Annotation>,
    pub pointer: Option<Pointee>,
    /// `int pair[2]`
    pub array: Option<String>,
    /// Of a pointer to a function.
    pub parameters: Option<Vec<Written>>,
}

/// What a pointer leads to, as far as syntax tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pointee {
    pub constant: bool,
    pub kind: Behind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behind {
    Void,
    Char,
    /// A structure whose definition the header does not have: only the library looks behind it.
    Unknown,
    Known,
}

#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    pub text: String,
    pub place: Place,
}

pub(crate) fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "gcc".to_owned())
}

/// Parses an annotated header. `include` are folders for `#include`, the one of `hindcast.h` among
/// them.
pub(crate) fn read(header: &Path, include: &[&Path]) -> Result<Source, InterfaceError> {
    let mut command = Command::new(compiler());
    command.args(["-E", "-x", "c", "-std=gnu11", "-D_GNU_SOURCE"]);
    for folder in include {
        command.arg("-I").arg(folder);
    }
    let text = compile(command.arg(header), header)?;
    parse(text, &header.to_string_lossy())
}

/// Runs a command of the compiler for a header. Returns what it prints.
pub(crate) fn compile(command: &mut Command, header: &Path) -> Result<String, InterfaceError> {
    let output = command
        .output()
        .map_err(|source| InterfaceError::NoCompiler {
            command: compiler(),
            source,
        })?;
    if !output.status.success() {
        return Err(InterfaceError::Compiler {
            header: header.into(),
            message: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The same for text that went through the preprocessor already.
pub(crate) fn parse(text: String, header: &str) -> Result<Source, InterfaceError> {
    let lines = lines(&text);
    let config = config();
    let parse = parse_preprocessed(&config, text).map_err(|error| InterfaceError::Syntax {
        place: place_in(&lines, &error.source, error.offset),
        found: error.source[error.offset..]
            .lines()
            .next()
            .unwrap_or("")
            .trim()
            .chars()
            .take(60)
            .collect(),
    })?;
    let mut reader = Reader {
        text: &parse.source,
        lines: &lines,
        typedefs: HashMap::new(),
        defined: HashSet::new(),
        annotated: Vec::new(),
    };
    let mut prototypes = Vec::new();
    for external in &parse.unit.0 {
        let ExternalDeclaration::Declaration(declaration) = &external.node else {
            continue;
        };
        reader.learn(&declaration.node);
        if reader.place(declaration.span.start).file == header {
            reader.prototypes(declaration, &mut prototypes)?;
        }
    }
    let typedefs = reader.typedefs.into_keys().collect();
    Ok(Source {
        text: parse.source,
        prototypes,
        typedefs,
    })
}

/// The syntax of one expression, given as text, with the source its spans refer to.
pub(crate) fn expression(
    text: &str,
    typedefs: &HashSet<String>,
) -> Option<(String, Node<Expression>)> {
    let mut source = String::new();
    for word in text
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .collect::<HashSet<_>>()
    {
        if typedefs.contains(word) {
            source.push_str(&format!("typedef int {word};\n"));
        }
    }
    source.push_str("int hindcast_expression = (\n");
    source.push_str(text);
    source.push_str("\n);\n");
    let parse = parse_preprocessed(&config(), source).ok()?;
    let Some(ExternalDeclaration::Declaration(last)) =
        parse.unit.0.into_iter().next_back().map(|node| node.node)
    else {
        return None;
    };
    let declarator = last.node.declarators.into_iter().next()?;
    let lang_c::ast::Initializer::Expression(value) = declarator.node.initializer?.node else {
        return None;
    };
    Some((parse.source, *value))
}

fn config() -> Config {
    Config {
        cpp_command: compiler(),
        cpp_options: Vec::new(),
        flavor: Flavor::GnuC11,
    }
}

impl Source {
    /// The text with every annotation overwritten by spaces: plain C at the same offsets.
    pub fn plain(&self) -> String {
        plain(&self.text)
    }
}

/// Overwrites annotations with spaces, so that offsets stay.
pub(crate) fn plain(text: &str) -> String {
    const START: &str = "__attribute__((annotate(\"hindcast ";
    let mut plain = text.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = text[from..].find(START) {
        let start = from + found;
        let mut end = start + "__attribute__".len();
        let (mut depth, mut quoted) = (0, false);
        for (offset, byte) in text.as_bytes()[end..].iter().enumerate() {
            let escaped = text.as_bytes()[end + offset - 1] == b'\\';
            match byte {
                b'"' if !escaped => quoted = !quoted,
                b'(' if !quoted => depth += 1,
                b')' if !quoted => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end += offset + 1;
                break;
            }
        }
        for byte in &mut plain[start..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        from = end;
    }
    String::from_utf8(plain).expect("only whole ASCII stretches were overwritten")
}

fn lines(text: &str) -> Vec<Line> {
    let (mut file, mut line): (std::rc::Rc<str>, usize) = ("".into(), 1);
    let mut offset = 0;
    let mut lines = Vec::new();
    for content in text.split_inclusive('\n') {
        let marker = content.strip_prefix("# ").and_then(|rest| {
            let (number, rest) = rest.split_once(' ')?;
            Some((
                number.parse::<usize>().ok()?,
                rest.strip_prefix('"')?.split_once('"')?.0,
            ))
        });
        match marker {
            Some((number, name)) => {
                if &*file != name {
                    file = name.into();
                }
                line = number;
            }
            None => {
                lines.push(Line {
                    offset,
                    file: file.clone(),
                    line,
                });
                line += 1;
            }
        }
        offset += content.len();
    }
    lines
}

fn place_in(lines: &[Line], text: &str, offset: usize) -> Place {
    // A span may begin with the white space before it.
    let skipped = text[offset..].len() - text[offset..].trim_start().len();
    let index = lines.partition_point(|line| line.offset <= offset + skipped);
    match index.checked_sub(1).map(|index| &lines[index]) {
        Some(line) => Place {
            file: line.file.to_string(),
            line: line.line,
        },
        None => Place {
            file: String::new(),
            line: 1,
        },
    }
}

struct Reader<'a> {
    text: &'a str,
    lines: &'a [Line],
    typedefs: HashMap<String, Named>,
    /// Tags of structures and unions with a definition.
    defined: HashSet<String>,
    annotated: Vec<Span>,
}

/// What a typedef stands for, as far as it matters here.
#[derive(Clone, PartialEq)]
enum Named {
    Void,
    Char,
    Tag(String),
    Other,
}

impl Reader<'_> {
    fn place(&self, offset: usize) -> Place {
        place_in(self.lines, self.text, offset)
    }

    fn learn(&mut self, declaration: &Declaration) {
        let mut is_typedef = false;
        for specifier in &declaration.specifiers {
            match &specifier.node {
                DeclarationSpecifier::StorageClass(class)
                    if class.node == StorageClassSpecifier::Typedef =>
                {
                    is_typedef = true
                }
                DeclarationSpecifier::TypeSpecifier(kind) => {
                    if let TypeSpecifier::Struct(structure) = &kind.node
                        && let (Some(tag), Some(_)) =
                            (&structure.node.identifier, &structure.node.declarations)
                    {
                        self.defined.insert(tag.node.name.clone());
                    }
                }
                _ => {}
            }
        }
        if is_typedef {
            let (named, _) = self.named(&declaration.specifiers);
            for declarator in &declaration.declarators {
                let declarator = &declarator.node.declarator.node;
                if let Some(name) = name_of(declarator) {
                    let meaning = if declarator.derived.is_empty() {
                        named.clone()
                    } else {
                        Named::Other
                    };
                    self.typedefs.insert(name.node.name.clone(), meaning);
                }
            }
        }
    }

    /// The base type and whether it is const.
    fn named(&self, specifiers: &[Node<DeclarationSpecifier>]) -> (Named, bool) {
        let mut named = Named::Other;
        let mut constant = false;
        for specifier in specifiers {
            match &specifier.node {
                DeclarationSpecifier::TypeQualifier(qualifier)
                    if qualifier.node == TypeQualifier::Const =>
                {
                    constant = true
                }
                DeclarationSpecifier::TypeSpecifier(kind) => {
                    named = match &kind.node {
                        TypeSpecifier::Void => Named::Void,
                        TypeSpecifier::Char => Named::Char,
                        TypeSpecifier::Struct(structure) => {
                            match (&structure.node.identifier, &structure.node.declarations) {
                                (Some(tag), None) => Named::Tag(tag.node.name.clone()),
                                _ => Named::Other,
                            }
                        }
                        TypeSpecifier::TypedefName(name) => self
                            .typedefs
                            .get(&name.node.name)
                            .cloned()
                            .unwrap_or(Named::Other),
                        _ => named,
                    }
                }
                _ => {}
            }
        }
        (named, constant)
    }

    fn prototypes(
        &mut self,
        declaration: &Node<Declaration>,
        prototypes: &mut Vec<Prototype>,
    ) -> Result<(), InterfaceError> {
        let specifiers = &declaration.node.specifiers;
        let leading = self.annotations_of_specifiers(specifiers)?;
        let is_typedef = specifiers.iter().any(|specifier| {
            matches!(&specifier.node, DeclarationSpecifier::StorageClass(class) if class.node == StorageClassSpecifier::Typedef)
        });
        for declarator in &declaration.node.declarators {
            let place = self.place(declarator.span.start);
            let declarator = &declarator.node.declarator;
            let mut derived = declarator.node.derived.iter();
            let function = derived.find_map(|derived| match &derived.node {
                DerivedDeclarator::Function(function) => Some((Some(&function.node), derived.span)),
                DerivedDeclarator::KRFunction(names) if names.is_empty() => {
                    Some((None, derived.span))
                }
                _ => None,
            });
            let mut annotations = leading.clone();
            self.annotations_of_declarator(&declarator.node, &mut annotations)?;
            let simple = matches!(declarator.node.kind.node, DeclaratorKind::Identifier(_));
            let (parameters, variadic, parameters_span) = match function {
                _ if is_typedef => continue,
                Some((Some(function), span)) if simple => {
                    let variadic = function.ellipsis == Ellipsis::Some;
                    (self.parameters(function)?, variadic, span)
                }
                Some((None, span)) if simple => (Vec::new(), false, span),
                _ => match annotations.first() {
                    Some(annotation) => {
                        return Err(InterfaceError::NotAFunction {
                            place,
                            keyword: annotation.text.clone(),
                        });
                    }
                    None => continue,
                },
            };
            let name = name_of(&declarator.node).expect("the declarator is an identifier");
            prototypes.push(Prototype {
                name: name.node.name.clone(),
                name_span: name.span,
                place,
                span: Span::span(declaration.span.start, parameters_span.end),
                declaration: declaration.span,
                annotations,
                parameters,
                variadic,
            });
        }
        Ok(())
    }

    fn is_void(&self, parameter: &Node<ParameterDeclaration>) -> bool {
        parameter.node.declarator.as_ref().is_none_or(|declarator| {
            declarator.node.derived.is_empty() && name_of(&declarator.node).is_none()
        }) && self.named(&parameter.node.specifiers).0 == Named::Void
    }

    fn parameter(
        &mut self,
        parameter: &Node<ParameterDeclaration>,
        index: usize,
    ) -> Result<Written, InterfaceError> {
        let place = self.place(parameter.span.start);
        let mut annotations = self.annotations_of_specifiers(&parameter.node.specifiers)?;
        self.annotations_of_extensions(&parameter.node.extensions, &mut annotations)?;
        let (named, base_constant) = self.named(&parameter.node.specifiers);
        let mut pointer = None;
        let mut array = None;
        let mut parameters = None;
        let mut name = None;
        if let Some(declarator) = &parameter.node.declarator {
            self.annotations_of_declarator(&declarator.node, &mut annotations)?;
            let inner = match &declarator.node.kind.node {
                DeclaratorKind::Declarator(inner) => &inner.node,
                _ => &declarator.node,
            };
            name = name_of(inner);
            let is_function_pointer = !std::ptr::eq(inner, &declarator.node)
                || declarator
                    .node
                    .derived
                    .iter()
                    .any(|derived| matches!(derived.node, DerivedDeclarator::Function(_)));
            if is_function_pointer {
                for derived in &declarator.node.derived {
                    if let DerivedDeclarator::Function(function) = &derived.node {
                        parameters = Some(self.parameters(&function.node)?);
                    }
                }
                pointer = Some(Pointee {
                    constant: false,
                    kind: Behind::Unknown,
                });
            } else {
                (pointer, array) = self.pointee(&declarator.node, &named, base_constant);
            }
        }
        let named = name.is_some();
        let text = plain(&self.text[parameter.span.start..parameter.span.end]);
        Ok(Written {
            name: name.map_or_else(
                || format!("argument_{}", index + 1),
                |name| name.node.name.clone(),
            ),
            named,
            place,
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            annotations,
            pointer,
            array,
            parameters,
        })
    }

    fn parameters(
        &mut self,
        function: &FunctionDeclarator,
    ) -> Result<Vec<Written>, InterfaceError> {
        let mut parameters = Vec::new();
        for (index, parameter) in function.parameters.iter().enumerate() {
            if !self.is_void(parameter) {
                parameters.push(self.parameter(parameter, index)?);
            }
        }
        Ok(parameters)
    }

    /// What a declarator of pointers and arrays leads to, and the length of its array.
    fn pointee(
        &self,
        declarator: &Declarator,
        named: &Named,
        base_constant: bool,
    ) -> (Option<Pointee>, Option<String>) {
        // `const char *const *p`: the last pointer is what is passed, the one before it what lies
        // behind.
        let (mut levels, mut arrays) = (Vec::new(), Vec::new());
        for derived in &declarator.derived {
            match &derived.node {
                DerivedDeclarator::Pointer(qualifiers) => levels.push(qualifiers.iter().any(|qualifier| {
                    matches!(&qualifier.node, PointerQualifier::TypeQualifier(node) if node.node == TypeQualifier::Const)
                })),
                DerivedDeclarator::Array(array) => arrays.push(&array.node.size),
                _ => {}
            }
        }
        let array = match arrays.as_slice() {
            [ArraySize::VariableExpression(size) | ArraySize::StaticExpression(size)] => {
                Some(self.text[size.span.start..size.span.end].to_owned())
            }
            _ => None,
        };
        let pointee = match levels.len() + arrays.len().min(1) {
            0 => None,
            1 => Some(Pointee {
                constant: base_constant,
                kind: match named {
                    Named::Void => Behind::Void,
                    Named::Char => Behind::Char,
                    Named::Tag(tag) if !self.defined.contains(tag) => Behind::Unknown,
                    _ => Behind::Known,
                },
            }),
            _ => Some(Pointee {
                constant: levels[levels.len() - if arrays.is_empty() { 2 } else { 1 }],
                kind: Behind::Known,
            }),
        };
        (pointee, array)
    }

    fn annotations_of_specifiers(
        &mut self,
        specifiers: &[Node<DeclarationSpecifier>],
    ) -> Result<Vec<Annotation>, InterfaceError> {
        let mut annotations = Vec::new();
        for specifier in specifiers {
            if let DeclarationSpecifier::Extension(extensions) = &specifier.node {
                self.annotations_of_extensions(extensions, &mut annotations)?;
            }
        }
        Ok(annotations)
    }

    fn annotations_of_declarator(
        &mut self,
        declarator: &Declarator,
        annotations: &mut Vec<Annotation>,
    ) -> Result<(), InterfaceError> {
        self.annotations_of_extensions(&declarator.extensions, annotations)?;
        for derived in &declarator.derived {
            if let DerivedDeclarator::Pointer(qualifiers) = &derived.node {
                for qualifier in qualifiers {
                    if let PointerQualifier::Extension(extensions) = &qualifier.node {
                        self.annotations_of_extensions(extensions, annotations)?;
                    }
                }
            }
        }
        if let DeclaratorKind::Declarator(inner) = &declarator.kind.node {
            self.annotations_of_declarator(&inner.node, annotations)?;
        }
        Ok(())
    }

    fn annotations_of_extensions(
        &mut self,
        extensions: &[Node<Extension>],
        annotations: &mut Vec<Annotation>,
    ) -> Result<(), InterfaceError> {
        for extension in extensions {
            let Extension::Attribute(attribute) = &extension.node else {
                continue;
            };
            if attribute.name.node != "annotate" {
                continue;
            }
            let [argument] = attribute.arguments.as_slice() else {
                continue;
            };
            let Expression::StringLiteral(literal) = &argument.node else {
                continue;
            };
            if let Some(text) = unquoted(&literal.node).strip_prefix("hindcast ") {
                annotations.push(Annotation {
                    text: text.to_owned(),
                    place: self.place(extension.span.start),
                });
                self.annotated.push(extension.span);
            }
        }
        Ok(())
    }
}

fn name_of(declarator: &Declarator) -> Option<&Node<lang_c::ast::Identifier>> {
    match &declarator.kind.node {
        DeclaratorKind::Identifier(name) => Some(name),
        DeclaratorKind::Declarator(inner) => name_of(&inner.node),
        DeclaratorKind::Abstract => None,
    }
}

/// The contents of adjacent string literals.
fn unquoted(literals: &[String]) -> String {
    let mut text = String::new();
    for literal in literals {
        let inner = literal
            .trim()
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .unwrap_or(literal);
        let mut chars = inner.chars();
        while let Some(c) = chars.next() {
            text.push(if c == '\\' {
                chars.next().unwrap_or(c)
            } else {
                c
            });
        }
    }
    text
}
