//! Exact decimal numbers, added up, divided and written as Postgres' `numeric` does it.

use num_bigint::{BigInt, Sign};

use crate::encoding::{Kind, encode};

/// A sum of decimals. Its scale is the largest of its terms.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    unscaled: BigInt,
    scale: u32,
    /// What became of it once a term was not a number, or infinite.
    special: Option<Special>,
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    NaN,
    Infinite { negative: bool },
}

impl Sum {
    /// Adds a value in text form. `None` if it is none.
    pub fn add(&mut self, text: &str) -> Option<()> {
        self.count += 1;
        let special = match text {
            "NaN" => Some(Special::NaN),
            "Infinity" => Some(Special::Infinite { negative: false }),
            "-Infinity" => Some(Special::Infinite { negative: true }),
            _ => None,
        };
        if let Some(special) = special {
            self.special = Some(match self.special {
                Some(before) if before != special => Special::NaN,
                _ => special,
            });
            return Some(());
        }
        let (digits, scale) = match text.split_once('.') {
            None => (BigInt::parse_bytes(text.as_bytes(), 10)?, 0),
            Some((whole, fraction)) => {
                let all = format!("{whole}{fraction}");
                (
                    BigInt::parse_bytes(all.as_bytes(), 10)?,
                    u32::try_from(fraction.len()).ok()?,
                )
            }
        };
        match self.scale.cmp(&scale) {
            std::cmp::Ordering::Less => {
                self.unscaled *= power(scale - self.scale);
                self.scale = scale;
                self.unscaled += digits;
            }
            _ => self.unscaled += digits * power(self.scale - scale),
        }
        Some(())
    }

    pub fn total(&self) -> String {
        self.special_text()
            .unwrap_or_else(|| written(&self.unscaled, self.scale))
    }

    /// The sum divided by the number of terms, with as many digits as Postgres gives it.
    pub fn average(&self) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        if let Some(text) = self.special_text() {
            return Some(text);
        }
        let scale = quotient_scale(&self.unscaled, self.scale, self.count);
        let numerator = &self.unscaled * power(scale + 1);
        let divisor = BigInt::from(self.count) * power(self.scale);
        // One digit more than wanted, then rounded half away from zero.
        let more: BigInt = numerator / divisor;
        let half = match more.sign() {
            Sign::Minus => BigInt::from(-5),
            _ => BigInt::from(5),
        };
        Some(written(&((more + half) / BigInt::from(10)), scale))
    }

    fn special_text(&self) -> Option<String> {
        let text = match self.special? {
            Special::NaN => "NaN",
            Special::Infinite { negative: false } => "Infinity",
            Special::Infinite { negative: true } => "-Infinity",
        };
        Some(text.to_owned())
    }
}

fn power(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

fn written(unscaled: &BigInt, scale: u32) -> String {
    let digits = unscaled.magnitude().to_string();
    let sign = match unscaled.sign() {
        Sign::Minus => "-",
        _ => "",
    };
    let scale = scale as usize;
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// `select_div_scale` of Postgres' numeric.c: at least 16 significant digits, in steps of four, and
/// no fewer than the dividend has.
fn quotient_scale(dividend: &BigInt, scale: u32, divisor: u64) -> u32 {
    let (weight_one, first_one) = base_ten_thousand(dividend, scale);
    let (weight_two, first_two) = base_ten_thousand(&BigInt::from(divisor), 0);
    let mut weight = weight_one - weight_two;
    if first_one <= first_two {
        weight -= 1;
    }
    let wanted = 16 - weight * 4;
    u32::try_from(wanted.max(i64::from(scale)).clamp(0, 1000)).unwrap_or(0)
}

/// Where the first digit to the base of ten thousand is, 0 being the one before the point, and what
/// it is.
fn base_ten_thousand(unscaled: &BigInt, scale: u32) -> (i64, u32) {
    let digits = unscaled.magnitude().to_string();
    if digits == "0" {
        return (0, 0);
    }
    let before_point = digits.len() as i64 - i64::from(scale);
    let weight = (before_point - 1).div_euclid(4);
    let in_first = (before_point - weight * 4) as usize;
    let first = digits.chars().chain(std::iter::repeat('0')).take(in_first);
    (weight, first.collect::<String>().parse().unwrap_or(0))
}

/// A decimal number without an exponent, and with a digit before its point: `1e3` is `1000`, `.5`
/// is `0.5`.
pub fn plain_decimal(text: &str) -> Option<String> {
    /// Digits of what is written with an exponent; Postgres has room for more before the point.
    const DIGITS_MAX: i64 = 16_383;
    encode(Kind::Numeric, text.as_bytes(), &mut Vec::new()).ok()?;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        let special = match digits.to_ascii_lowercase().as_str() {
            "nan" => "NaN",
            _ => "Infinity",
        };
        return Some(format!("{sign}{special}"));
    }
    let (digits, exponent) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut all = format!("{whole}{fraction}");
    let mut scale = fraction.len() as i64 - exponent;
    if !(-DIGITS_MAX..=DIGITS_MAX).contains(&scale) {
        return None;
    }
    if scale < 0 {
        all.extend(std::iter::repeat_n('0', scale.unsigned_abs() as usize));
        scale = 0;
    }
    let scale = scale as usize;
    let padded = format!("{all:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let sign = match padded.bytes().all(|byte| byte == b'0') {
        true => "",
        false => sign,
    };
    Some(match fraction {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    })
}

/// A floating-point number as Postgres writes it: the fewest digits that mean it, with an exponent
/// where `%g` would have one.
pub fn float(value: f64, digits: i32, shortest: String) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..digits).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `double precision`.
pub fn float8(value: f64) -> String {
    float(value, 15, format!("{value:e}"))
}

/// `real`.
pub fn float4(value: f32) -> String {
    if (-4..6).contains(&exponent_of(value)) || value == 0.0 {
        return format!("{value}");
    }
    float(f64::from(value), 6, format!("{value:e}"))
}

fn exponent_of(value: f32) -> i32 {
    let text = format!("{value:e}");
    text.split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(terms: &[&str]) -> Sum {
        let mut sum = Sum::default();
        for term in terms {
            sum.add(term).unwrap();
        }
        sum
    }

    /// Right-hand sides are what Postgres 15 answers.
    #[test]
    fn sums_and_averages_have_the_digits_that_postgres_gives_them() {
        assert_eq!(sum(&["1.10", "2.2", "-0.005"]).total(), "3.295");
        assert_eq!(sum(&["1", "2"]).average().unwrap(), "1.5000000000000000");
        assert_eq!(
            sum(&["1", "2", "4"]).average().unwrap(),
            "2.3333333333333333"
        );
        assert_eq!(
            sum(&["100000", "200001"]).average().unwrap(),
            "150000.500000000000"
        );
        assert_eq!(
            sum(&["0.01", "0.02", "0.02"]).average().unwrap(),
            "0.01666666666666666667"
        );
        assert_eq!(
            sum(&["-1", "0", "0"]).average().unwrap(),
            "-0.33333333333333333333"
        );
        assert_eq!(sum(&["0"]).average().unwrap(), "0.00000000000000000000");
        assert_eq!(sum(&["1.5", "NaN"]).total(), "NaN");
        assert_eq!(sum(&["Infinity", "-Infinity"]).total(), "NaN");
        assert_eq!(Sum::default().average(), None);
    }

    #[test]
    fn floats_are_written_as_postgres_does() {
        for (value, text) in [
            (1e20, "1e+20"),
            (1e15, "1e+15"),
            (123456789012345.0, "123456789012345"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5, "1.5"),
            (-2.5e-7, "-2.5e-07"),
        ] {
            assert_eq!(float8(value), text);
        }
        assert_eq!(float4(1e6), "1e+06");
        assert_eq!(float4(0.1), "0.1");
    }

    #[test]
    fn decimals_are_written_as_postgres_does() {
        for (text, written) in [
            ("1e3", "1000"),
            (".5", "0.5"),
            ("1.50", "1.50"),
            ("1.50e1", "15.0"),
            ("-007.10", "-7.10"),
            ("1.5e-3", "0.0015"),
            ("-0.0", "0.0"),
            ("1.", "1"),
            ("nan", "NaN"),
            ("-inf", "-Infinity"),
        ] {
            assert_eq!(plain_decimal(text).as_deref(), Some(written), "{text}");
        }
        assert_eq!(plain_decimal("1e1000000"), None);
        assert_eq!(plain_decimal("x"), None);
    }
}
