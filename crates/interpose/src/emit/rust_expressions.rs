//! Expressions of annotations (sizes, keys, conditions) as Rust. All arithmetic is in `i64`.

use super::rust::{rust_name, rust_type};
use crate::model::*;

/// A size or count as `usize`; what is negative is nothing.
pub(super) fn length(size: &Value) -> String {
    match size {
        Value::Constant(number) => number.max(&0).to_string(),
        Value::Result => "result as usize".to_owned(),
        Value::Parameter(name) => format!("{} as usize", rust_name(name)),
        value_ => format!("({}).max(0) as usize", value(value_)),
    }
}

pub(super) fn integer(value_: &Value, kind: &str) -> String {
    match value_ {
        Value::Constant(number) => number.to_string(),
        Value::Parameter(name) => format!("{} as {kind}", rust_name(name)),
        value_ => format!("({}) as {kind}", value(value_)),
    }
}

pub(super) fn reads_memory(value: &Value) -> bool {
    match value {
        Value::Load { .. } => true,
        Value::Constant(_) | Value::Parameter(_) | Value::Result => false,
        Value::Unary(_, inner) | Value::Cast { value: inner, .. } => reads_memory(inner),
        Value::Binary(_, left, right) => reads_memory(left) || reads_memory(right),
        Value::Conditional(a, b, c) => reads_memory(a) || reads_memory(b) || reads_memory(c),
        Value::Call(_, arguments) => arguments.iter().any(reads_memory),
    }
}

/// An expression of type `i64`.
pub(super) fn value(expression: &Value) -> String {
    match expression {
        Value::Constant(number) if *number < 0 => format!("({number}i64)"),
        Value::Constant(number) => format!("{number}i64"),
        Value::Parameter(name) => format!("({} as i64)", rust_name(name)),
        Value::Result => "(result as i64)".to_owned(),
        Value::Load {
            address,
            bytes,
            signed,
        } => {
            let kind = rust_type(Type::Integer {
                bytes: *bytes,
                signed: *signed,
            });
            format!(
                "(({} as *const {kind}).read_unaligned() as i64)",
                value(address)
            )
        }
        Value::Unary(Unary::Negate, inner) if matches!(**inner, Value::Constant(_)) => {
            let Value::Constant(number) = **inner else {
                unreachable!("the guard looked")
            };
            format!("(-{number}i64)")
        }
        Value::Unary(Unary::Negate, inner) => format!("{}.wrapping_neg()", value(inner)),
        Value::Unary(Unary::Complement, inner) => format!("(!{})", value(inner)),
        Value::Unary(Unary::Not, _) => format!("i64::from({})", condition(expression)),
        Value::Binary(operator, left, right) => {
            let (a, b) = (value(left), value(right));
            match operator {
                Binary::Add => format!("{a}.wrapping_add({b})"),
                Binary::Subtract => format!("{a}.wrapping_sub({b})"),
                Binary::Multiply => format!("{a}.wrapping_mul({b})"),
                // A division by zero in an annotation must not end the program.
                Binary::Divide => format!("{a}.checked_div({b}).unwrap_or(0)"),
                Binary::Modulo => format!("{a}.checked_rem({b}).unwrap_or(0)"),
                Binary::ShiftLeft => format!("{a}.wrapping_shl({b} as u32)"),
                Binary::ShiftRight => format!("{a}.wrapping_shr({b} as u32)"),
                Binary::BitAnd => format!("({a} & {b})"),
                Binary::BitXor => format!("({a} ^ {b})"),
                Binary::BitOr => format!("({a} | {b})"),
                _ => format!("i64::from({})", condition(expression)),
            }
        }
        Value::Conditional(test, yes, no) => format!(
            "(if {} {{ {} }} else {{ {} }})",
            condition(test),
            value(yes),
            value(no)
        ),
        Value::Cast {
            value: inner,
            bytes,
            signed,
        } => {
            format!(
                "({} as {} as i64)",
                value(inner),
                rust_type(Type::Integer {
                    bytes: *bytes,
                    signed: *signed
                })
            )
        }
        Value::Call(name, arguments) => match name.as_str() {
            "least" => format!("{}.min({})", value(&arguments[0]), value(&arguments[1])),
            "greatest" => format!("{}.max({})", value(&arguments[0]), value(&arguments[1])),
            "length_within" => format!(
                "(libc::strnlen({} as *const libc::c_char, {} as usize) as i64)",
                value(&arguments[0]),
                value(&arguments[1])
            ),
            "length" => format!(
                "(libc::strlen({} as *const libc::c_char) as i64)",
                value(&arguments[0])
            ),
            "sync_key" => format!(
                "(files::sync_key({}).unwrap_or(0) as i64)",
                integer(&arguments[0], "i32")
            ),
            // Another function of the same library.
            _ => {
                let types = vec!["i64"; arguments.len()].join(", ");
                let arguments: Vec<_> = arguments.iter().map(value).collect();
                format!(
                    "(foreign::next!({name}: unsafe extern \"C\" fn({types}) -> i32)({}) as i64)",
                    arguments.join(", ")
                )
            }
        },
    }
}

/// An expression of type `bool`.
fn condition(expression: &Value) -> String {
    let compare =
        |operator: &str, a: &Value, b: &Value| format!("({} {operator} {})", value(a), value(b));
    match expression {
        Value::Unary(Unary::Not, inner) => format!("!{}", condition(inner)),
        Value::Binary(Binary::Less, a, b) => compare("<", a, b),
        Value::Binary(Binary::Greater, a, b) => compare(">", a, b),
        Value::Binary(Binary::LessOrEqual, a, b) => compare("<=", a, b),
        Value::Binary(Binary::GreaterOrEqual, a, b) => compare(">=", a, b),
        Value::Binary(Binary::Equal, a, b) => compare("==", a, b),
        Value::Binary(Binary::NotEqual, a, b) => compare("!=", a, b),
        Value::Binary(Binary::And, a, b) => format!("({} && {})", condition(a), condition(b)),
        Value::Binary(Binary::Or, a, b) => format!("({} || {})", condition(a), condition(b)),
        other => format!("({} != 0)", value(other)),
    }
}
