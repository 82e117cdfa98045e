//! C expressions in annotations, with the types resolved to numbers.

use lang_c::ast::{self, BinaryOperator, IntegerBase, MemberOperator, UnaryOperator};
use lang_c::span::Node;

use crate::InterfaceError;
use crate::model::{Binary, Expression, Place, Unary, Value};
use crate::oracle::Oracle;
use crate::source::{Prototype, Source, expression};

/// Where an expression stands: whose parameters it may name.
pub(crate) struct Scope<'a> {
    pub source: &'a Source,
    pub oracle: &'a Oracle,
    /// Which prototype, for the oracle.
    pub prototype: usize,
    /// Names that stand for values.
    pub names: Vec<&'a str>,
    /// The oracle knows the types of the names. Not so for the parameters of callbacks.
    pub typed: bool,
}

/// The functions an expression may call, whatever header it is in.
const FUNCTIONS: [&str; 5] = ["least", "greatest", "length", "length_within", "sync_key"];

impl<'a> Scope<'a> {
    pub fn new(
        source: &'a Source,
        oracle: &'a Oracle,
        number: usize,
        prototype: &'a Prototype,
    ) -> Self {
        let names = prototype
            .parameters
            .iter()
            .map(|parameter| parameter.name.as_str())
            .collect();
        Scope {
            source,
            oracle,
            prototype: number,
            names,
            typed: true,
        }
    }

    /// What the compiler says, or something harmless until it has been asked.
    pub fn ask(&self, question: String) -> i64 {
        self.answer(question).unwrap_or(1)
    }

    /// As [`Scope::ask`], for who must not go on with something made up.
    pub fn answer(&self, question: String) -> Option<i64> {
        self.oracle.ask(self.prototype, question)
    }

    pub fn expression(&self, text: &str, place: &Place) -> Result<Expression, InterfaceError> {
        let text = text.trim();
        let wrong = |why: String| InterfaceError::Expression {
            place: place.clone(),
            text: text.to_owned(),
            why,
        };
        let (parsed, node) = expression(text, &self.source.typedefs)
            .ok_or_else(|| wrong("this is no C expression".to_owned()))?;
        let translation = Translation {
            scope: self,
            text: &parsed,
        };
        let value = translation.value(&node).map_err(wrong)?;
        Ok(Expression {
            text: text.to_owned(),
            uses_result: value.any(&|part| *part == Value::Result),
            value,
        })
    }
}

struct Translation<'a> {
    scope: &'a Scope<'a>,
    text: &'a str,
}

impl Translation<'_> {
    fn written<T>(&self, node: &Node<T>) -> &str {
        self.text[node.span.start..node.span.end].trim()
    }

    /// The size of an expression's type, and whether it is signed; only scalars have a value.
    fn scalar(&self, text: &str) -> Result<(u8, bool), String> {
        if !self.scope.typed {
            return Err(format!(
                "`{text}`: in a callback, numbers and the names of its parameters, and + - * / on them"
            ));
        }
        let bytes = self.scope.ask(format!("sizeof({text})"));
        let Some(class) = self
            .scope
            .answer(format!("__builtin_classify_type({text})"))
        else {
            return Ok((8, false));
        };
        match class {
            1..=4 => {
                let signed = self
                    .scope
                    .ask(format!("(__typeof__({text}))-1 < (__typeof__({text}))1"))
                    != 0;
                Ok((bytes as u8, signed))
            }
            5 if bytes == 8 => Ok((8, false)),
            _ => Err(format!("`{text}` is neither a number nor a pointer")),
        }
    }

    fn load(&self, address: Value, text: &str) -> Result<Value, String> {
        let (bytes, signed) = self.scalar(text)?;
        Ok(Value::Load {
            address: Box::new(address),
            bytes,
            signed,
        })
    }

    /// The address of something that can stand left of an assignment.
    fn address(&self, node: &Node<ast::Expression>) -> Result<Value, String> {
        match &node.node {
            ast::Expression::UnaryOperator(unary)
                if unary.node.operator.node == UnaryOperator::Indirection =>
            {
                self.value(&unary.node.operand)
            }
            ast::Expression::Member(member) => {
                let inner = &member.node.expression;
                let structure = self.written(inner);
                let (base, structure) = match member.node.operator.node {
                    MemberOperator::Indirect => (self.value(inner)?, format!("*({structure})")),
                    MemberOperator::Direct => (self.address(inner)?, structure.to_owned()),
                };
                let field = &member.node.identifier.node.name;
                let offset = self.scope.ask(format!(
                    "__builtin_offsetof(__typeof__({structure}), {field})"
                ));
                Ok(add(base, offset))
            }
            ast::Expression::BinaryOperator(binary)
                if binary.node.operator.node == BinaryOperator::Index =>
            {
                let pointer = self.value(&binary.node.lhs)?;
                let index = self.value(&binary.node.rhs)?;
                let size = self.scope.ask(format!("sizeof({})", self.written(node)));
                Ok(match index {
                    Value::Constant(index) => add(pointer, index * size),
                    index => Value::Binary(
                        Binary::Add,
                        Box::new(pointer),
                        Box::new(multiply(index, size)),
                    ),
                })
            }
            _ => Err(format!("`{}` has no address", self.written(node))),
        }
    }

    fn value(&self, node: &Node<ast::Expression>) -> Result<Value, String> {
        use ast::Expression as E;
        let text = || self.written(node).to_owned();
        match &node.node {
            E::Identifier(identifier) => Ok(self.named(&identifier.node.name)),
            E::Constant(constant) => self.constant(&constant.node, text()),
            E::SizeOfTy(_) | E::SizeOfVal(_) | E::AlignOf(_) | E::OffsetOf(_) => {
                Ok(Value::Constant(self.scope.ask(text())))
            }
            E::Member(_) => self.load(self.address(node)?, &text()),
            E::UnaryOperator(unary) => {
                let operand = &unary.node.operand;
                let operator = match unary.node.operator.node {
                    UnaryOperator::Plus => return self.value(operand),
                    UnaryOperator::Minus => Unary::Negate,
                    UnaryOperator::Complement => Unary::Complement,
                    UnaryOperator::Negate => Unary::Not,
                    UnaryOperator::Address => return self.address(operand),
                    UnaryOperator::Indirection => return self.load(self.address(node)?, &text()),
                    _ => return Err("an annotation changes nothing: no ++ and --".to_owned()),
                };
                Ok(Value::Unary(operator, Box::new(self.value(operand)?)))
            }
            E::Cast(cast) => {
                let value = self.value(&cast.node.expression)?;
                Ok(match self.scalar(&text())? {
                    (8, _) => value,
                    (bytes, signed) => Value::Cast {
                        value: Box::new(value),
                        bytes,
                        signed,
                    },
                })
            }
            E::BinaryOperator(binary) if binary.node.operator.node == BinaryOperator::Index => {
                self.load(self.address(node)?, &text())
            }
            E::BinaryOperator(binary) => self.binary(&binary.node),
            E::Conditional(conditional) => Ok(Value::Conditional(
                Box::new(self.value(&conditional.node.condition)?),
                Box::new(self.value(&conditional.node.then_expression)?),
                Box::new(self.value(&conditional.node.else_expression)?),
            )),
            E::Call(call) => self.call(&call.node, text()),
            _ => Err(format!("`{}` is more than an annotation can say", text())),
        }
    }

    fn named(&self, name: &str) -> Value {
        if self.scope.names.contains(&name) {
            Value::Parameter(name.to_owned())
        } else if name == "result" {
            Value::Result
        } else {
            Value::Constant(self.scope.ask(name.to_owned()))
        }
    }

    fn constant(&self, constant: &ast::Constant, text: String) -> Result<Value, String> {
        match constant {
            ast::Constant::Integer(integer) => {
                let radix = match integer.base {
                    IntegerBase::Decimal => 10,
                    IntegerBase::Octal => 8,
                    IntegerBase::Hexadecimal => 16,
                    IntegerBase::Binary => 2,
                };
                let number = u64::from_str_radix(&integer.number, radix)
                    .map_err(|_| format!("`{text}` does not fit into 64 bits"))?;
                Ok(Value::Constant(number as i64))
            }
            ast::Constant::Character(_) => Ok(Value::Constant(self.scope.ask(text))),
            ast::Constant::Float(_) => Err("sizes and keys are whole numbers".to_owned()),
        }
    }

    fn binary(&self, binary: &ast::BinaryOperatorExpression) -> Result<Value, String> {
        let operator = match binary.operator.node {
            BinaryOperator::Multiply => Binary::Multiply,
            BinaryOperator::Divide => Binary::Divide,
            BinaryOperator::Modulo => Binary::Modulo,
            BinaryOperator::Plus => Binary::Add,
            BinaryOperator::Minus => Binary::Subtract,
            BinaryOperator::ShiftLeft => Binary::ShiftLeft,
            BinaryOperator::ShiftRight => Binary::ShiftRight,
            BinaryOperator::Less => Binary::Less,
            BinaryOperator::Greater => Binary::Greater,
            BinaryOperator::LessOrEqual => Binary::LessOrEqual,
            BinaryOperator::GreaterOrEqual => Binary::GreaterOrEqual,
            BinaryOperator::Equals => Binary::Equal,
            BinaryOperator::NotEquals => Binary::NotEqual,
            BinaryOperator::BitwiseAnd => Binary::BitAnd,
            BinaryOperator::BitwiseXor => Binary::BitXor,
            BinaryOperator::BitwiseOr => Binary::BitOr,
            BinaryOperator::LogicalAnd => Binary::And,
            BinaryOperator::LogicalOr => Binary::Or,
            _ => return Err("an annotation changes nothing: no assignments".to_owned()),
        };
        let (left, right) = (self.value(&binary.lhs)?, self.value(&binary.rhs)?);
        if self.scope.typed && matches!(operator, Binary::Add | Binary::Subtract) {
            self.refuse_pointer(&binary.lhs)?;
            self.refuse_pointer(&binary.rhs)?;
        }
        Ok(Value::Binary(operator, Box::new(left), Box::new(right)))
    }

    /// C multiplies what is added to a pointer; sums here are of numbers.
    fn refuse_pointer(&self, operand: &Node<ast::Expression>) -> Result<(), String> {
        let text = self.written(operand);
        let is_constant = matches!(operand.node, ast::Expression::Constant(_));
        if !is_constant && self.scope.ask(format!("__builtin_classify_type({text})")) == 5 {
            return Err(format!(
                "`{text}` is a pointer: write p[i] or cast it to a number"
            ));
        }
        Ok(())
    }

    fn call(&self, call: &ast::CallExpression, text: String) -> Result<Value, String> {
        let ast::Expression::Identifier(callee) = &call.callee.node else {
            return Err("only functions by their name can be called".to_owned());
        };
        let name = callee.node.name.as_str();
        let arguments = call
            .arguments
            .iter()
            .map(|argument| self.value(argument))
            .collect::<Result<Vec<_>, _>>()?;
        let wanted = match name {
            "least" | "greatest" | "length_within" => 2,
            "length" | "sync_key" => 1,
            // A function that the header declares for its expressions; the runtime has it by hand.
            _ => arguments.len(),
        };
        if arguments.len() != wanted {
            return Err(format!("{name} takes {wanted} arguments"));
        }
        let mut prototypes = self.scope.source.prototypes.iter();
        let is_prototype = prototypes.any(|prototype| prototype.name == name);
        if !FUNCTIONS.contains(&name) && !is_prototype {
            // The compiler complains here when there is no such function.
            self.scope.ask(format!("sizeof({text})"));
        }
        Ok(Value::Call(name.to_owned(), arguments))
    }
}

fn add(value: Value, offset: i64) -> Value {
    match offset {
        0 => value,
        offset => Value::Binary(
            Binary::Add,
            Box::new(value),
            Box::new(Value::Constant(offset)),
        ),
    }
}

pub(crate) fn multiply(value: Value, factor: i64) -> Value {
    match (value, factor) {
        (value, 1) => value,
        (Value::Constant(number), factor) => Value::Constant(number * factor),
        (value, factor) => Value::Binary(
            Binary::Multiply,
            Box::new(value),
            Box::new(Value::Constant(factor)),
        ),
    }
}
