//! Damage to a segment's files: an error that names the file, never wrong records and never a
//! panic.

use std::fs;

use crate::common::*;
use hindcast_trace::*;
use tempfile::TempDir;

#[test]
fn a_byte_changed_anywhere_in_a_segment_is_noticed() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(&location, quiet()).unwrap();
    for sequence in 1..=10 {
        writer.record(Record::Request(request(0, sequence)));
    }
    writer.close().unwrap();
    let path = folder.path().join("requests/r0-000001.parquet");
    let bytes = fs::read(&path).unwrap();
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(&path, &damaged).unwrap();
        let trace = Trace::open(&location).unwrap();
        let error = trace
            .requests(RequestFilter::default())
            .next()
            .unwrap()
            .unwrap_err();
        let expected = "requests/r0-000001.parquet is damaged: its checksum is not the one it was written with";
        assert!(
            error.to_string().ends_with(expected),
            "byte {place}: {error}"
        );
    }
    fs::write(&path, &bytes[1..]).unwrap();
    let error = Trace::open(&location)
        .unwrap()
        .request(Id::new(0, 1))
        .unwrap_err()
        .to_string();
    assert!(error.contains("bytes long, and was"), "{error}");
    fs::write(&path, &bytes).unwrap();
    assert_eq!(
        Trace::open(&location)
            .unwrap()
            .requests(RequestFilter::default())
            .count(),
        10
    );
}

#[test]
fn a_damaged_table_that_is_read_at_opening_is_named() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let (writer, _) = Writer::create(&location, quiet()).unwrap();
    writer.record(Record::Shape(Shape {
        id: ShapeId(1),
        statements: vec!["SELECT 1".into()],
    }));
    writer.close().unwrap();
    let path = folder.path().join("shapes/r0-000001.parquet");
    let mut bytes = fs::read(&path).unwrap();
    bytes[10] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let error = Trace::open(&location).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("shapes/r0-000001.parquet is damaged"),
        "{error}"
    );
    assert!(error.hint().contains("from a copy"));
}
