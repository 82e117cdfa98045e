//! The tables of a trace: their columns, and how a record becomes a row and back.
//!
//! `shred` and `assemble` of a table stand next to each other and go through its columns in the
//! same order. What the columns mean is told in `docs/trace-format.md`; a test keeps the two in
//! step.

mod requests;
mod small;
mod transactions;

pub(crate) use requests::Requests;
pub(crate) use small::{Bases, FinalStates, Gaps, Recorders, Shapes};
pub(crate) use transactions::Transactions;

use crate::parquet_table::Malformed;

/// HTTP knows no encoding for header values but ISO 8859-1, in which every byte is a character: so
/// any value can be kept as text, and reads well where it is ASCII, which is nearly always.
fn latin1_to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

fn text_to_latin1(text: &[u8]) -> Result<Vec<u8>, Malformed> {
    if text.is_ascii() {
        return Ok(text.to_vec());
    }
    let text = str::from_utf8(text).map_err(|_| Malformed("text that is not UTF-8".into()))?;
    let bytes: Option<Vec<u8>> = text
        .chars()
        .map(|character| u8::try_from(u32::from(character)).ok())
        .collect();
    bytes.ok_or_else(|| Malformed("a header value with characters beyond ISO 8859-1".into()))
}

fn missing(what: &str) -> Malformed {
    Malformed(format!("a row without {what}"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use parquet::schema::printer::print_schema;

    use super::*;
    use crate::parquet_table::{Table, schema_of};

    #[test]
    fn the_schema_file_shows_the_schema_as_it_is() {
        fn print<T: Table>(out: &mut Vec<u8>) {
            print_schema(out, &schema_of::<T>());
        }
        let mut out = Vec::new();
        print::<Requests>(&mut out);
        print::<Transactions>(&mut out);
        print::<Shapes>(&mut out);
        print::<Gaps>(&mut out);
        print::<Bases>(&mut out);
        print::<Recorders>(&mut out);
        print::<FinalStates>(&mut out);
        expect_file!["../../schema.txt"].assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn every_column_is_explained_on_the_format_page() {
        let page = include_str!("../../../../docs/trace-format.md");
        fn check<T: Table>(page: &str) {
            for column in T::COLUMNS {
                assert!(
                    page.contains(&format!("`{}`", column.name)),
                    "{}.{} is not explained",
                    T::NAME,
                    column.name
                );
            }
        }
        check::<Requests>(page);
        check::<Transactions>(page);
        check::<Shapes>(page);
        check::<Gaps>(page);
        check::<Bases>(page);
        check::<Recorders>(page);
        check::<FinalStates>(page);
    }

    #[test]
    fn any_header_value_survives_as_text() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(
            text_to_latin1(latin1_to_text(&all).as_bytes()).unwrap(),
            all
        );
        assert!(text_to_latin1("€".as_bytes()).is_err());
    }
}
