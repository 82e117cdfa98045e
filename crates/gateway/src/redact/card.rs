//! Numbers of payment cards.

/// How many digits in front tell the issuer and stay as they are.
const ISSUER_DIGITS: usize = 6;

/// Whether a text is the number of a card and nothing else: 15 or 16 digits of a common issuer,
/// alone or in groups, with the right check digit. Ids and times are digits too, so nothing less is
/// taken for a card.
pub(super) fn is_card(text: &str) -> bool {
    let length = text.len();
    if !(15..=19).contains(&length) || !text.starts_with(['2', '3', '4', '5', '6']) {
        return false;
    }
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b' ' | b'-'));
    let digits: Vec<u8> = text
        .bytes()
        .filter(u8::is_ascii_digit)
        .map(|d| d - b'0')
        .collect();
    let start = digits.iter().take(4).fold(0, |n, &d| n * 10 + u16::from(d));
    let issued = match digits.len() {
        15 => matches!(start / 100, 34 | 37),
        16 => {
            matches!(start, 4000..=4999 | 5100..=5599 | 2221..=2720 | 6011 | 6440..=6599)
        }
        _ => false,
    };
    plain && issued && check_sum(&digits) == 0
}

/// Luhn's, over all digits: 0 if the last one is right.
fn check_sum(digits: &[u8]) -> u8 {
    let sum: u32 = (digits.iter().rev().enumerate())
        .map(|(at, &digit)| match (at % 2, digit * 2) {
            (0, _) => u32::from(digit),
            (_, doubled) => u32::from(doubled / 10 + doubled % 10),
        })
        .sum();
    (sum % 10) as u8
}

/// `shown` with other digits behind the issuer's, in the same groups, and the check digit that
/// fits.
pub(super) fn disguise(shown: &str, plain: &str, random: &str) -> String {
    let digit = |byte: u8| byte - b'0';
    let mut digits: Vec<u8> = (plain.bytes().take(ISSUER_DIGITS))
        .chain(random.bytes().skip(ISSUER_DIGITS))
        .take(plain.len())
        .map(digit)
        .collect();
    if let Some(last) = digits.last_mut() {
        *last = 0;
    }
    let sum = check_sum(&digits);
    if let Some(last) = digits.last_mut() {
        *last = (10 - sum) % 10;
    }
    let mut digits = digits.into_iter();
    shown
        .chars()
        .map(|c| match c.is_ascii_digit() {
            true => char::from(b'0' + digits.next().unwrap_or(0)),
            false => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_told_from_other_digits() {
        for card in [
            "4111111111111111",
            "4111 1111 1111 1111",
            "5555-5555-5555-4444",
            "378282246310005",
        ] {
            assert!(is_card(card), "{card}");
            let plain: String = card.chars().filter(char::is_ascii_digit).collect();
            let other = disguise(card, &plain, "0123456789012345");
            assert!(
                is_card(&other) && other.len() == card.len() && other != card,
                "{other}"
            );
        }
        for other in [
            "4111111111111112",
            "1700000000000000",
            "1763800000000",
            "",
            "41111111111111 x",
        ] {
            assert!(!is_card(other), "{other}");
        }
    }
}
