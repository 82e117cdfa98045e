//! Arrays in binary form, for clients that ask for it: the store has them as Postgres writes them.

use bytes::BufMut;

use super::sql::SqlError;

/// The type of an array's elements, where they have a binary form.
pub fn element_of(type_oid: u32) -> Option<u32> {
    Some(match type_oid {
        199 => 114,
        1000 => 16,
        1001 => 17,
        1002 => 18,
        1003 => 19,
        1005 => 21,
        1007 => 23,
        1009 => 25,
        1014 => 1042,
        1015 => 1043,
        1016 => 20,
        1021 => 700,
        1022 => 701,
        1028 => 26,
        1115 => 1114,
        1182 => 1082,
        1183 => 1083,
        1185 => 1184,
        1231 => 1700,
        2951 => 2950,
        3807 => 3802,
        _ => return None,
    })
}

/// An array as text has it, its elements one after the other.
#[derive(Debug, Default, PartialEq, Eq)]
struct Array {
    /// Length and first subscript of each dimension.
    dimensions: Vec<(i32, i32)>,
    elements: Vec<Option<Vec<u8>>>,
}

/// Appends the binary form: dimensions, whether there are nulls, the elements' type, then they, as
/// `one` appends each. `None`: it is no array.
pub fn to_binary(
    element: u32,
    text: &[u8],
    out: &mut Vec<u8>,
    one: impl Fn(u32, &[u8], &mut Vec<u8>) -> Result<(), SqlError>,
) -> Result<Option<()>, SqlError> {
    let Some(array) = parse(text) else {
        return Ok(None);
    };
    out.put_i32(array.dimensions.len() as i32);
    out.put_i32(i32::from(array.elements.iter().any(Option::is_none)));
    out.put_u32(element);
    for (length, first) in &array.dimensions {
        out.put_i32(*length);
        out.put_i32(*first);
    }
    for value in &array.elements {
        let Some(value) = value else {
            out.put_i32(-1);
            continue;
        };
        let at = out.len();
        out.put_i32(0);
        one(element, value, out)?;
        let length = (out.len() - at - 4) as i32;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(Some(()))
}

/// `{1,NULL,"a b"}`, `{{1,2},{3,4}}`, `[0:1]={a,b}`.
fn parse(text: &[u8]) -> Option<Array> {
    let (firsts, mut rest) = subscripts(text)?;
    let mut array = Array::default();
    // How many there are so far at each depth, and how many there were.
    let (mut open, mut lengths): (Vec<i32>, Vec<i32>) = (Vec::new(), Vec::new());
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            b'{' => {
                open.push(0);
                rest = tail;
            }
            b'}' => {
                let count = open.pop()?;
                let depth = open.len();
                if lengths.len() <= depth {
                    lengths.resize(depth + 1, count);
                }
                lengths[depth] = count;
                if let Some(outer) = open.last_mut() {
                    *outer += 1;
                }
                rest = tail;
            }
            b',' => rest = tail,
            _ => {
                let (value, tail) = element(rest)?;
                array.elements.push(value);
                *open.last_mut()? += 1;
                rest = tail;
            }
        }
    }
    if !open.is_empty() || lengths.is_empty() {
        return None;
    }
    if !array.elements.is_empty() {
        let firsts = firsts.into_iter().chain(std::iter::repeat(1));
        array.dimensions = lengths.into_iter().zip(firsts).collect();
    }
    Some(array)
}

/// What is before `=`, if it is there: the first subscript of each dimension.
fn subscripts(text: &[u8]) -> Option<(Vec<i32>, &[u8])> {
    if text.first() != Some(&b'[') {
        return Some((Vec::new(), text));
    }
    let end = text.iter().position(|byte| *byte == b'=')?;
    let bounds = std::str::from_utf8(&text[..end]).ok()?;
    let firsts = bounds.split('[').skip(1);
    let firsts = firsts.map(|bound| bound.split_once(':')?.0.parse().ok());
    Some((firsts.collect::<Option<_>>()?, &text[end + 1..]))
}

fn element(text: &[u8]) -> Option<(Option<Vec<u8>>, &[u8])> {
    if text[0] != b'"' {
        let end = text.iter().position(|byte| matches!(byte, b',' | b'}'))?;
        let (value, rest) = text.split_at(end);
        let is_null = value.eq_ignore_ascii_case(b"null");
        return Some(((!is_null).then(|| value.to_vec()), rest));
    }
    let mut value = Vec::new();
    let mut at = 1;
    loop {
        match *text.get(at)? {
            b'"' => return Some((Some(value), &text[at + 1..])),
            b'\\' => {
                value.push(*text.get(at + 1)?);
                at += 2;
            }
            byte => {
                value.push(byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        let Some(array) = parse(text.as_bytes()) else {
            return "none".to_owned();
        };
        let shown = |value: &Option<Vec<u8>>| match value {
            Some(value) => String::from_utf8_lossy(value).into_owned(),
            None => "-".to_owned(),
        };
        let elements: Vec<_> = array.elements.iter().map(shown).collect();
        format!("{:?} {}", array.dimensions, elements.join("|"))
    }

    #[test]
    fn arrays_are_read_as_postgres_writes_them() {
        assert_eq!(said("{}"), "[] ");
        assert_eq!(said("{1,NULL,3}"), "[(3, 1)] 1|-|3");
        assert_eq!(
            said(r#"{"a b","NULL","q\"\\",x}"#),
            r#"[(4, 1)] a b|NULL|q"\|x"#
        );
        assert_eq!(said(r#"{"",","}"#), "[(2, 1)] |,");
        assert_eq!(said("{{1,2},{3,4},{5,6}}"), "[(3, 1), (2, 1)] 1|2|3|4|5|6");
        assert_eq!(said("[0:1][-2:-2]={{a},{b}}"), "[(2, 0), (1, -2)] a|b");
        for broken in ["", "1", "{1", "{\"a}", "[1={1}"] {
            assert_eq!(said(broken), "none", "{broken}");
        }
    }

    #[test]
    fn an_array_of_numbers_is_written_with_their_lengths() {
        let mut out = Vec::new();
        let one = |_, text: &[u8], out: &mut Vec<u8>| {
            let number: i32 = std::str::from_utf8(text).unwrap().parse().unwrap();
            out.put_i32(number);
            Ok(())
        };
        to_binary(23, b"{7,NULL}", &mut out, one).unwrap().unwrap();
        let words: Vec<i32> = out
            .chunks(4)
            .map(|word| i32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, [1, 1, 23, 2, 1, 4, 7, -1]);
    }
}
