//! Messages as the protocol's documentation describes them, put together by hand.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Writes messages.
#[derive(Clone, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn tag(tag: u8) -> Self {
        Self(vec![tag])
    }

    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn text(mut self, value: &str) -> Self {
        self.0.extend(value.as_bytes());
        self.u8(0)
    }

    fn tuple(self, datums: &[Datum<'_>]) -> Self {
        let count = u16::try_from(datums.len()).unwrap();
        datums
            .iter()
            .fold(self.u16(count), |mut out, datum| match datum {
                Datum::Null => out.u8(b'n'),
                Datum::Unchanged => out.u8(b'u'),
                Datum::Text(text) => {
                    out = out.u8(b't').u32(u32::try_from(text.len()).unwrap());
                    out.0.extend(*text);
                    out
                }
            })
    }

    fn decode(&self) -> Result<Message<'_>, Malformed> {
        let decoded = Decoder::default().decode(&self.0)?;
        assert_eq!(decoded.streamed, None);
        Ok(decoded.message)
    }

    #[track_caller]
    fn refused(&self) -> String {
        Decoder::default().decode(&self.0).unwrap_err().what
    }
}

const A: Datum<'static> = Datum::Text(b"a");

/// The datums of a tuple, for comparison.
fn datums<'a>(tuple: Tuple<'a>) -> Vec<Datum<'a>> {
    assert_eq!(tuple.iter().count(), tuple.len());
    let again = Tuple::from_raw(tuple.len(), tuple.raw()).unwrap();
    assert_eq!(again, tuple);
    tuple.iter().collect()
}

#[test]
fn a_transaction_begins_and_commits() {
    let begin = Bytes::tag(b'B').u64(0x10).u64(1_000_000).u32(7);
    assert_eq!(
        begin.decode(),
        Ok(Message::Begin(Begin {
            final_lsn: Lsn(0x10),
            time: POSTGRES_EPOCH + 1_000_000,
            xid: 7
        }))
    );
    let commit = Bytes::tag(b'C').u8(0).u64(0x10).u64(0x20).u64(0);
    assert_eq!(
        commit.decode(),
        Ok(Message::Commit(Commit {
            lsn: Lsn(0x10),
            end_lsn: Lsn(0x20),
            time: POSTGRES_EPOCH
        }))
    );
}

#[test]
fn a_table_is_described() {
    let relation = |identity: u8| {
        Bytes::tag(b'R')
            .u32(16_384)
            .text("public")
            .text("konto")
            .u8(identity)
            .u16(2)
            .u8(1)
            .text("id")
            .u32(23)
            .u32(u32::MAX)
            .u8(0)
            .text("größe")
            .u32(1043)
            .u32(24)
    };
    let expected = Relation {
        id: 16_384,
        schema: "public".to_owned(),
        name: "konto".to_owned(),
        identity: Identity::Default,
        columns: vec![
            Column {
                name: "id".to_owned(),
                key: true,
                type_oid: 23,
                type_modifier: -1,
            },
            Column {
                name: "größe".to_owned(),
                key: false,
                type_oid: 1043,
                type_modifier: 24,
            },
        ],
    };
    assert_eq!(expected.to_string(), "public.konto");
    assert_eq!(relation(b'd').decode(), Ok(Message::Relation(expected)));
    for (byte, identity) in [
        (b'n', Identity::Nothing),
        (b'f', Identity::Full),
        (b'i', Identity::Index),
    ] {
        let bytes = relation(byte);
        let Ok(Message::Relation(relation)) = bytes.decode() else {
            panic!("not a relation");
        };
        assert_eq!(relation.identity, identity);
    }
    assert_eq!(relation(b'x').refused(), "replica identity 120");
}

#[test]
fn an_empty_schema_means_the_system_catalog() {
    let bytes = Bytes::tag(b'R')
        .u32(1)
        .text("")
        .text("pg_x")
        .u8(b'd')
        .u16(0);
    let Ok(Message::Relation(relation)) = bytes.decode() else {
        panic!("not a relation");
    };
    assert_eq!(relation.schema, "pg_catalog");
}

#[test]
fn an_insert_has_the_new_row() {
    let row = [A, Datum::Null, Datum::Text(b"")];
    let bytes = Bytes::tag(b'I').u32(5).u8(b'N').tuple(&row);
    let Ok(Message::Change {
        relation: 5,
        change: Change::Insert { new },
    }) = bytes.decode()
    else {
        panic!("not an insert");
    };
    assert_eq!(datums(new), row);
    assert!(!new.is_empty());
}

#[test]
fn an_update_may_say_what_the_row_was() {
    let new = [A, Datum::Unchanged];
    let plain = Bytes::tag(b'U').u32(5).u8(b'N').tuple(&new);
    assert!(matches!(
        plain.decode(),
        Ok(Message::Change {
            change: Change::Update { old: Old::None, .. },
            ..
        })
    ));
    let old = [Datum::Text(b"b"), Datum::Null];
    let change = |kind| {
        Bytes::tag(b'U')
            .u32(5)
            .u8(kind)
            .tuple(&old)
            .u8(b'N')
            .tuple(&new)
    };
    let (key, full) = (change(b'K'), change(b'O'));
    let Ok(Message::Change {
        change: Change::Update {
            old: Old::Key(was),
            new: is,
        },
        ..
    }) = key.decode()
    else {
        panic!("not an update with a key");
    };
    assert_eq!((datums(was), datums(is)), (old.to_vec(), new.to_vec()));
    assert!(matches!(
        full.decode(),
        Ok(Message::Change {
            change: Change::Update {
                old: Old::Full(_),
                ..
            },
            ..
        })
    ));
    let twice = Bytes::tag(b'U')
        .u32(5)
        .u8(b'K')
        .tuple(&old)
        .u8(b'K')
        .tuple(&old);
    assert_eq!(twice.refused(), "an update with a tuple of kind 75");
}

#[test]
fn a_deletion_says_which_row() {
    let old = [A];
    let change = |kind| Bytes::tag(b'D').u32(5).u8(kind).tuple(&old);
    let (key, full) = (change(b'K'), change(b'O'));
    assert!(matches!(
        key.decode(),
        Ok(Message::Change {
            relation: 5,
            change: Change::Delete { old: Old::Key(_) }
        })
    ));
    assert!(matches!(
        full.decode(),
        Ok(Message::Change {
            relation: 5,
            change: Change::Delete { old: Old::Full(_) }
        })
    ));
    assert_eq!(change(b'N').refused(), "a deletion with a tuple of kind 78");
}

#[test]
fn a_truncation_names_tables_and_options() {
    let bytes = Bytes::tag(b'T').u32(2).u8(3).u32(5).u32(6);
    assert_eq!(
        bytes.decode(),
        Ok(Message::Truncate {
            relations: vec![5, 6],
            how: Truncate {
                cascade: true,
                restart_identity: true
            }
        })
    );
    assert_eq!(
        Bytes::tag(b'T').u32(u32::MAX).u8(0).u32(5).refused(),
        "it ends too early",
        "a count is not believed before the oids are there"
    );
}

#[test]
fn what_is_for_others_is_read_over() {
    assert_eq!(
        Bytes::tag(b'O').u64(1).text("elsewhere").decode(),
        Ok(Message::Origin)
    );
    assert_eq!(
        Bytes::tag(b'Y').u32(1).text("public").text("mood").decode(),
        Ok(Message::Type)
    );
    let custom = Bytes::tag(b'M')
        .u8(1)
        .u64(9)
        .text("who")
        .u32(2)
        .u8(b'h')
        .u8(b'i');
    assert_eq!(
        custom.decode(),
        Ok(Message::Custom {
            transactional: true,
            at: Lsn(9),
            prefix: b"who",
            content: b"hi"
        })
    );
}

#[test]
fn messages_inside_a_stream_carry_their_subtransaction() {
    let mut decoder = Decoder::default();
    let mut decode = |bytes: &Bytes| {
        let decoded = decoder.decode(&bytes.0).unwrap();
        (decoded.streamed, format!("{:?}", decoded.message))
    };
    let outside = Bytes::tag(b'D').u32(5).u8(b'K').tuple(&[A]);
    let inside = Bytes::tag(b'D').u32(8).u32(5).u8(b'K').tuple(&[A]);
    assert_eq!(decode(&outside).0, None);
    assert_eq!(
        decode(&Bytes::tag(b'S').u32(7).u8(1)),
        (None, "StreamStart { xid: 7, first: true }".to_owned())
    );
    let (streamed, text) = decode(&inside);
    assert_eq!(streamed, Some(8));
    assert_eq!(text, decode(&inside).1);
    assert_eq!(decode(&Bytes::tag(b'E')), (None, "StreamStop".to_owned()));
    assert_eq!(decode(&outside), (None, text));
    assert_eq!(
        decode(&Bytes::tag(b'A').u32(7).u32(8)).1,
        "StreamAbort { xid: 7, subxid: 8 }"
    );
    let commit = Bytes::tag(b'c').u32(7).u8(0).u64(1).u64(2).u64(0);
    assert!(decode(&commit).1.starts_with("StreamCommit { xid: 7,"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert_eq!(Bytes::default().refused(), "it ends too early");
    assert_eq!(Bytes::tag(b'?').refused(), "unknown kind '?'");
    assert_eq!(
        Bytes::tag(b'C').u8(0).u64(1).u64(2).u64(3).u8(0).refused(),
        "1 bytes too many"
    );
    assert_eq!(
        Bytes::tag(b'R').u32(1).u8(b'x').refused(),
        "a text that does not end"
    );
    assert_eq!(
        Bytes::tag(b'R').u32(1).u8(0xff).u8(0).refused(),
        "a name that is not UTF-8"
    );
    let insert = Bytes::tag(b'I').u32(1);
    assert_eq!(
        insert.clone().u8(b'K').tuple(&[A]).refused(),
        "an insert with a tuple of kind 75"
    );
    let binary = insert.clone().u8(b'N').u16(1).u8(b'b').u32(0);
    assert_eq!(binary.refused(), "a binary value, which nobody asked for");
    let long = insert.u8(b'N').u16(1).u8(b't').u32(5).u8(b'x');
    assert_eq!(long.refused(), "it ends too early");
    assert!(Tuple::from_raw(1, b"nn").is_err() && Tuple::from_raw(2, b"n").is_err());
}

/// Every kind of message, whole.
fn whole() -> impl Strategy<Value = Vec<u8>> {
    let datum = prop_oneof![
        Just(None),
        Just(Some(None)),
        vec(any::<u8>(), 0..20).prop_map(|text| Some(Some(text)))
    ];
    let tuple = vec(datum, 0..6).prop_map(|values| {
        let values: Vec<Datum<'_>> = values
            .iter()
            .map(|value| match value {
                None => Datum::Null,
                Some(None) => Datum::Unchanged,
                Some(Some(text)) => Datum::Text(text),
            })
            .collect();
        Bytes::default().tuple(&values).0
    });
    (
        prop::sample::select(&b"BCORYIUDTMSEcA"[..]),
        prop::sample::select(&b"NKO"[..]),
        tuple.clone(),
        tuple,
        vec(any::<u8>(), 0..60),
    )
        .prop_map(|(tag, kind, old, new, rest)| {
            let mut bytes = Bytes::tag(tag).u32(5).0;
            match tag {
                b'I' => bytes.extend([&b"N"[..], &new[..]].concat()),
                b'D' => bytes.extend([&[kind], &old[..]].concat()),
                b'U' => bytes.extend([&[kind], &old[..], &b"N"[..], &new[..]].concat()),
                _ => {
                    bytes.truncate(1);
                    bytes.extend(rest);
                }
            }
            bytes
        })
}

/// Looks at everything that a message has.
fn look_at(message: &Message<'_>) {
    let tuples: Vec<Tuple<'_>> = match message {
        Message::Change { change, .. } => match *change {
            Change::Insert { new } => vec![new],
            Change::Update {
                old: Old::Key(old) | Old::Full(old),
                new,
            } => vec![old, new],
            Change::Update { new, .. } => vec![new],
            Change::Delete {
                old: Old::Key(old) | Old::Full(old),
            } => vec![old],
            Change::Delete { old: Old::None } => panic!("a deletion of nothing"),
        },
        _ => vec![],
    };
    for tuple in tuples {
        datums(tuple);
    }
}

proptest! {
    /// Whatever a server sends, cut off or damaged anywhere, is a message or an error, and what is
    /// a message can be looked at.
    #[test]
    fn decoding_never_panics(
        messages in vec(
            (prop_oneof![whole(), vec(any::<u8>(), 0..40)], any::<prop::sample::Index>(), any::<Option<u8>>()),
            1..8,
        )
    ) {
        let mut decoder = Decoder::default();
        for (mut bytes, at, damage) in messages {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                match damage {
                    None => {}
                    Some(0..=127) => bytes.truncate(at),
                    Some(byte) => bytes[at] = byte,
                }
            }
            if let Ok(decoded) = decoder.decode(&bytes) {
                look_at(&decoded.message);
            }
        }
    }

    /// A message of which anything is missing is never taken for a whole one.
    #[test]
    fn what_is_cut_off_is_refused(bytes in whole(), at in any::<prop::sample::Index>()) {
        let decode = |bytes: &[u8]| Decoder::default().decode(bytes).map(|decoded| format!("{:?}", decoded.message));
        // Origin and type are read over without a look at what they say.
        if decode(&bytes).is_ok() && !matches!(bytes[0], b'O' | b'Y') {
            prop_assert!(decode(&bytes[..at.index(bytes.len())]).is_err());
        }
    }
}
