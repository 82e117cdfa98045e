//! Numbers as Postgres writes them.

use std::io::Write;

/// Appends formatted text. Writing to memory does not fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {
        write!($out, $($text)*).expect("memory takes what is written to it")
    };
}
pub(super) use put;

/// A float type, by what its text depends on.
struct Width {
    /// Binary digits of a number.
    digits: u32,
    /// A text with so many decimal digits is the nearest of one number at most.
    sure_digits: i32,
    /// From this power of ten on, numbers are written with an exponent.
    exponent_from: i32,
}

const SINGLE: Width = Width {
    digits: 24,
    sure_digits: 6,
    exponent_from: 6,
};
const DOUBLE: Width = Width {
    digits: 53,
    sure_digits: 15,
    exponent_from: 15,
};

pub(super) fn float4(value: f32, out: &mut Vec<u8>) {
    if !special(value.into(), out) {
        let is_it = |text: &str| text.parse() == Ok(value.abs());
        finite(
            value.into(),
            &format!("{:e}", value.abs()),
            &SINGLE,
            is_it,
            out,
        );
    }
}

pub(super) fn float8(value: f64, out: &mut Vec<u8>) {
    if !special(value, out) {
        let is_it = |text: &str| text.parse() == Ok(value.abs());
        finite(value, &format!("{:e}", value.abs()), &DOUBLE, is_it, out);
    }
}

fn special(value: f64, out: &mut Vec<u8>) -> bool {
    let text: &[u8] = match value {
        _ if value.is_nan() => b"NaN",
        _ if value == f64::INFINITY => b"Infinity",
        _ if value == f64::NEG_INFINITY => b"-Infinity",
        _ => return false,
    };
    out.extend_from_slice(text);
    true
}

/// `shortest`: the least digits that are read as this number, as in `1.5e-7`. `is_it`: whether a
/// text is read as this number.
fn finite(
    value: f64,
    shortest: &str,
    width: &Width,
    is_it: impl Fn(&str) -> bool,
    out: &mut Vec<u8>,
) {
    let (mut digits, mut exponent) = parts(shortest);
    if digits.len() as i32 > width.sure_digits || is_halfway(&digits, exponent, width) {
        // Of two such texts that are as near Postgres writes the even one. One that lies halfway
        // between two numbers is not read alike by all, so it writes more digits.
        let texts = (digits.len() - 1..17).map(|behind| format!("{:.behind$e}", value.abs()));
        let is_right = |text: &String| {
            let (digits, exponent) = parts(text);
            is_it(text) && !is_halfway(&digits, exponent, width)
        };
        if let Some(text) = texts.into_iter().find(is_right) {
            (digits, exponent) = parts(&text);
        }
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let (first, rest) = digits.split_at(1);
    let rest_length = rest.len() as i32;
    match exponent {
        _ if exponent < -4 || exponent >= width.exponent_from => {
            out.extend_from_slice(first.as_bytes());
            if !rest.is_empty() {
                put!(out, ".{rest}");
            }
            let sign = if exponent < 0 { '-' } else { '+' };
            put!(out, "e{sign}{:02}", exponent.abs());
        }
        _ if exponent < 0 => put!(
            out,
            "0.{:0>1$}",
            digits,
            digits.len() + (-exponent - 1) as usize
        ),
        _ if rest_length <= exponent => put!(out, "{:0<1$}", digits, exponent as usize + 1),
        _ => {
            let (whole, fraction) = digits.split_at(exponent as usize + 1);
            put!(out, "{whole}.{fraction}");
        }
    }
}

/// The digits of a text like `1.5e-7`, and its power of ten.
fn parts(text: &str) -> (String, i32) {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let digits = digits.replace('.', "");
    (digits, exponent.parse().unwrap_or(0))
}

/// Whether a text lies halfway between two numbers: it has exactly one binary digit too many.
fn is_halfway(digits: &str, exponent: i32, width: &Width) -> bool {
    let Ok(mut number) = digits.parse::<u64>() else {
        return false;
    };
    if number == 0 {
        return false;
    }
    number >>= number.trailing_zeros();
    // Powers of two say nothing of how many digits there are, so powers of five are left.
    let power = exponent - (digits.len() as i32 - 1);
    for _ in 0..power.abs() {
        let next = match power > 0 {
            true => number.checked_mul(5),
            false => (number % 5 == 0).then_some(number / 5),
        };
        let Some(next) = next else { return false };
        number = next;
    }
    u64::BITS - number.leading_zeros() == width.digits + 1
}

/// A `numeric`; false if it is none.
pub(super) fn numeric(value: &[u8], out: &mut Vec<u8>) -> bool {
    let Some((head, digits)) = value.split_first_chunk::<8>() else {
        return false;
    };
    let [count, weight, sign, scale] =
        [0, 2, 4, 6].map(|at| u16::from_be_bytes([head[at], head[at + 1]]));
    let (digits, rest) = digits.as_chunks::<2>();
    if digits.len() != usize::from(count) || !rest.is_empty() {
        return false;
    }
    match sign {
        0 => {}
        0x4000 => out.push(b'-'),
        0xC000 => out.extend_from_slice(b"NaN"),
        0xD000 => out.extend_from_slice(b"Infinity"),
        0xF000 => out.extend_from_slice(b"-Infinity"),
        _ => return false,
    }
    if sign >= 0xC000 {
        return true;
    }
    // Each stands for four decimal digits; those that are not there are zeros.
    let digit = |at: i32| match usize::try_from(at).map(|at| digits.get(at)) {
        Ok(Some(&digit)) => u16::from_be_bytes(digit),
        _ => 0,
    };
    let weight = i32::from(weight as i16);
    put!(out, "{}", if weight < 0 { 0 } else { digit(0) });
    for at in 1..=weight {
        put!(out, "{:04}", digit(at));
    }
    if scale > 0 {
        out.push(b'.');
        let end = out.len() + usize::from(scale);
        let mut at = weight + 1;
        while out.len() < end {
            put!(out, "{:04}", digit(at));
            at += 1;
        }
        out.truncate(end);
    }
    true
}
