//! What a file says of its values lets a reader leave row groups out that a question is not about.

use crate::common::*;
use hindcast_trace::*;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use parquet::file::statistics::Statistics;
use tempfile::TempDir;

const REQUESTS: u64 = 5000;
/// How many users none of which sent a request are tried.
const ABSENT: u64 = 2000;

/// Looks at the one row group of a table.
fn look(folder: &TempDir, table: &str, look: impl FnOnce(&dyn RowGroupReader)) {
    let properties = ReaderProperties::builder()
        .set_read_bloom_filter(true)
        .build();
    let options = ReadOptionsBuilder::new().with_reader_properties(properties);
    let path = folder.path().join(table).join("r0-000001.parquet");
    let file = std::fs::File::open(path).unwrap();
    let file = SerializedFileReader::new_with_options(file, options.build()).unwrap();
    assert_eq!(file.num_row_groups(), 1);
    look(&*file.get_row_group(0).unwrap());
}

fn place(group: &dyn RowGroupReader, name: &str) -> usize {
    let columns = group.metadata().columns();
    let found = columns
        .iter()
        .position(|column| column.column_path().string() == name);
    found.unwrap_or_else(|| panic!("there is no column {name}"))
}

fn made() -> TempDir {
    let folder = TempDir::new().unwrap();
    let (writer, number) = Writer::create(&Location::folder(folder.path()), quiet()).unwrap();
    for sequence in 1..=REQUESTS {
        let mut request = request(number, sequence);
        request.user_id = Some(format!("user {}", sequence % 700));
        request.caller_traceparent = (sequence % 10 == 0).then(|| format!("00-{sequence}"));
        writer.record(Record::Request(request));
        writer.record(Record::Transaction(transaction(number, sequence)));
    }
    writer.close().unwrap();
    folder
}

#[test]
fn who_sent_nothing_is_told_by_a_filter_that_is_small() {
    let folder = made();
    look(&folder, "requests", |group| {
        let filter = |name: &str| {
            let place = place(group, name);
            let found = group.get_column_bloom_filter(place);
            (found.expect("it has a filter"), place)
        };
        let (users, column) = filter("user_id");
        assert!((0..700).all(|user| users.check(format!("user {user}").as_str())));
        let in_vain = (0..ABSENT)
            .filter(|user| users.check(format!("nobody {user}").as_str()))
            .count() as u64;
        assert!(in_vain * 100 <= ABSENT * 5, "{in_vain} of {ABSENT}");
        let bytes = group.metadata().column(column).bloom_filter_length();
        assert!((700..=1500).contains(&bytes.unwrap()), "{bytes:?} bytes");

        assert!(filter("caller_traceparent").0.check("00-4710"));
        assert!(!filter("target").0.check("/nowhere"));
        let plain = place(group, "method");
        assert!(group.get_column_bloom_filter(plain).is_none());
    });
}

#[test]
fn what_is_asked_for_by_its_size_has_bounds() {
    let folder = made();
    look(&folder, "requests", |group| {
        for name in ["duration_us", "status"] {
            let column = group.metadata().column(place(group, name));
            assert!(column.statistics().is_some(), "{name}");
        }
    });
    look(&folder, "transactions", |group| {
        for name in ["duration_us", "xid", "outcome", "shape"] {
            let column = group.metadata().column(place(group, name));
            assert!(column.statistics().is_some(), "{name}");
        }
        let outcome = group.metadata().column(place(group, "outcome"));
        let Some(Statistics::ByteArray(outcomes)) = outcome.statistics() else {
            panic!("outcomes are texts");
        };
        assert_eq!(outcomes.min_opt().unwrap().data(), b"committed");
    });
}
