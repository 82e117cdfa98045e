//! Expressions of annotations (sizes, keys, conditions) as Rust. All arithmetic is in `i64`.

use hindcast_interpose::model::*;
use proc_macro2::TokenStream;
use quote::quote;

use crate::syntax::{code, ident, rust_type};

/// A size or count as `usize`; what is negative is nothing.
pub fn length(size: &Value) -> TokenStream {
    match size {
        Value::Constant(number) => code(&number.max(&0).to_string()),
        Value::Result => quote!(result as usize),
        Value::Parameter(name) => {
            let name = ident(name);
            quote!(#name as usize)
        }
        other => {
            let other = value(other);
            quote!((#other).max(0) as usize)
        }
    }
}

/// A descriptor.
pub fn descriptor(expression: &Value) -> TokenStream {
    match expression {
        Value::Constant(number) => code(&number.to_string()),
        Value::Parameter(name) => {
            let name = ident(name);
            quote!(#name as i32)
        }
        other => {
            let other = value(other);
            quote!((#other) as i32)
        }
    }
}

pub fn reads_memory(value: &Value) -> bool {
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
pub fn value(expression: &Value) -> TokenStream {
    let integer = |bytes: &u8, signed: &bool| {
        rust_type(Type::Integer {
            bytes: *bytes,
            signed: *signed,
        })
    };
    match expression {
        Value::Constant(number) if *number < 0 => code(&format!("({number}i64)")),
        Value::Constant(number) => code(&format!("{number}i64")),
        Value::Parameter(name) => {
            let name = ident(name);
            quote!((#name as i64))
        }
        Value::Result => quote!((result as i64)),
        Value::Load {
            address,
            bytes,
            signed,
        } => {
            let (address, kind) = (value(address), integer(bytes, signed));
            quote!(((#address as *const #kind).read_unaligned() as i64))
        }
        Value::Unary(operator, inner) => match (operator, value(inner)) {
            (Unary::Negate, inner) => quote!(#inner.wrapping_neg()),
            (Unary::Complement, inner) => quote!((!#inner)),
            (Unary::Not, _) => truth(expression),
        },
        Value::Binary(operator, left, right) => {
            arithmetic(*operator, left, right).unwrap_or_else(|| truth(expression))
        }
        Value::Conditional(test, yes, no) => {
            let (test, yes, no) = (condition(test), value(yes), value(no));
            quote!((if #test { #yes } else { #no }))
        }
        Value::Cast {
            value: inner,
            bytes,
            signed,
        } => {
            let (inner, kind) = (value(inner), integer(bytes, signed));
            quote!((#inner as #kind as i64))
        }
        Value::Call(name, arguments) => called(name, arguments),
    }
}

/// None for operators that give a truth.
fn arithmetic(operator: Binary, left: &Value, right: &Value) -> Option<TokenStream> {
    let (a, b) = (value(left), value(right));
    Some(match operator {
        Binary::Add => quote!(#a.wrapping_add(#b)),
        Binary::Subtract => quote!(#a.wrapping_sub(#b)),
        Binary::Multiply => quote!(#a.wrapping_mul(#b)),
        // A division by zero in an annotation must not end the program.
        Binary::Divide => quote!(#a.checked_div(#b).unwrap_or(0)),
        Binary::Modulo => quote!(#a.checked_rem(#b).unwrap_or(0)),
        Binary::ShiftLeft => quote!(#a.wrapping_shl(#b as u32)),
        Binary::ShiftRight => quote!(#a.wrapping_shr(#b as u32)),
        Binary::BitAnd => quote!((#a & #b)),
        Binary::BitXor => quote!((#a ^ #b)),
        Binary::BitOr => quote!((#a | #b)),
        _ => return None,
    })
}

fn called(name: &str, arguments: &[Value]) -> TokenStream {
    let values: Vec<_> = arguments.iter().map(value).collect();
    match (name, values.as_slice()) {
        ("least", [a, b]) => quote!(#a.min(#b)),
        ("greatest", [a, b]) => quote!(#a.max(#b)),
        ("length_within", [a, b]) => {
            quote!((libc::strnlen(#a as *const libc::c_char, #b as usize) as i64))
        }
        ("length", [a]) => quote!((libc::strlen(#a as *const libc::c_char) as i64)),
        ("sync_key", _) => {
            let descriptor = descriptor(&arguments[0]);
            quote!((files::sync_key(#descriptor).unwrap_or(0) as i64))
        }
        // Another function of the same library.
        _ => {
            let name = code(name);
            let types = arguments.iter().map(|_| quote!(i64));
            quote!((foreign::next!(#name: unsafe extern "C" fn(#(#types),*) -> i32)(#(#values),*) as i64))
        }
    }
}

/// An expression of type `bool`.
fn condition(expression: &Value) -> TokenStream {
    let (operator, a, b) = match expression {
        Value::Unary(Unary::Not, inner) => {
            let inner = condition(inner);
            return quote!(!#inner);
        }
        Value::Binary(operator @ (Binary::And | Binary::Or), a, b) => {
            (*operator, condition(a), condition(b))
        }
        Value::Binary(operator, a, b) => (*operator, value(a), value(b)),
        other => (Binary::NotEqual, value(other), quote!(0)),
    };
    match operator {
        Binary::Less => quote!((#a < #b)),
        Binary::Greater => quote!((#a > #b)),
        Binary::LessOrEqual => quote!((#a <= #b)),
        Binary::GreaterOrEqual => quote!((#a >= #b)),
        Binary::Equal => quote!((#a == #b)),
        Binary::NotEqual => quote!((#a != #b)),
        Binary::And => quote!((#a && #b)),
        Binary::Or => quote!((#a || #b)),
        _ => {
            let value = value(expression);
            quote!((#value != 0))
        }
    }
}

fn truth(expression: &Value) -> TokenStream {
    let condition = condition(expression);
    quote!(i64::from(#condition))
}
