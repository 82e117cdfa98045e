//! Messages as text, for tests that are read by people.
//!
//! One message per line: its tag, then its fields. `-` stands for an empty name, `~` for a line
//! break in a text.
//!
//! ```text
//! client:  Q text            P name text        B portal statement value…   E portal [rows]
//!          D S|P name        C S|P name         S   H   X   F oid
//!          d data            c                  f reason                    p data
//! server:  T column…         D value…           C tag        Z status       E sqlstate [position] text
//!          1 2 3 n s I       t oid…             G H W columns               d data   c
//!          S name value      N sqlstate text    A         V value           K pid key   R kind data
//! ```

use bytes::{BufMut, BytesMut};
use hindcast_wire::Direction;
use hindcast_wire::frame::{self, Frame};
use hindcast_wire::message::backend::{self, Column};
use hindcast_wire::message::frontend::{self, Startup, Target};

fn name(word: &str) -> &[u8] {
    if word == "-" { b"" } else { word.as_bytes() }
}

fn words(rest: &str, count: usize) -> Vec<&str> {
    let mut words: Vec<&str> = rest.splitn(count, ' ').collect();
    words.resize(count, "");
    words
}

fn values(rest: &str) -> Vec<Option<&[u8]>> {
    rest.split_whitespace()
        .map(|word| (word != "NULL").then_some(word.as_bytes()))
        .collect()
}

/// Appends what a client's line says.
pub fn client(line: &str, out: &mut BytesMut) {
    let (tag, rest) = line.split_once(' ').unwrap_or((line, ""));
    let text = rest.replace('~', "\n");
    let target = |rest: &str| {
        let (kind, of) = rest.split_once(' ').expect("kind and name");
        match kind {
            "S" => Target::Statement(Box::leak(name(of).to_vec().into_boxed_slice())),
            "P" => Target::Portal(Box::leak(name(of).to_vec().into_boxed_slice())),
            _ => panic!("describe or close what: {rest}"),
        }
    };
    match tag {
        "startup" => {
            let pairs: Vec<(&[u8], &[u8])> = rest
                .split_whitespace()
                .map(|pair| pair.split_once('=').expect("name=value"))
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
                .collect();
            frontend::startup(out, frontend::PROTOCOL_3_0, &pairs);
        }
        "Q" => frontend::query(out, text.as_bytes()),
        "P" => {
            let (of, text) = text.split_once(' ').unwrap_or((&text, ""));
            frontend::parse(out, name(of), text.as_bytes(), &[]);
        }
        "B" => {
            let fields = words(rest, 3);
            frontend::bind(out, name(fields[0]), name(fields[1]), &values(fields[2]));
        }
        "E" => {
            let fields = words(rest, 2);
            frontend::execute(out, name(fields[0]), fields[1].parse().unwrap_or(0));
        }
        "D" => frontend::describe(out, target(rest)),
        "C" => frontend::close(out, target(rest)),
        "S" => frontend::sync(out),
        "H" => frontend::flush(out),
        "X" => frontend::terminate(out),
        "F" => frontend::function_call(out, rest.parse().expect("an oid")),
        "d" => frontend::copy_data(out, text.as_bytes()),
        "c" => frontend::copy_done(out),
        "f" => frontend::copy_fail(out, rest.as_bytes()),
        "p" => frontend::password(out, rest.as_bytes()),
        "raw" => out.put_slice(rest.as_bytes()),
        _ => panic!("no such message: {line}"),
    }
}

/// Appends what a server's line says.
pub fn server(line: &str, out: &mut BytesMut) {
    let (tag, rest) = line.split_once(' ').unwrap_or((line, ""));
    match tag {
        "1" => backend::parse_complete(out),
        "2" => backend::bind_complete(out),
        "3" => backend::close_complete(out),
        "n" => backend::no_data(out),
        "s" => backend::portal_suspended(out),
        "I" => backend::empty_query_response(out),
        "c" => backend::copy_done(out),
        "t" => backend::parameter_description(out, &[]),
        // name, or name@table.attribute
        "T" => {
            let columns: Vec<Column<'_>> = rest
                .split_whitespace()
                .map(|word| {
                    let (name, origin) = word.split_once('@').unwrap_or((word, "0.0"));
                    let (table, attribute) = origin.split_once('.').expect("table.attribute");
                    Column {
                        name: name.as_bytes(),
                        table: table.parse().unwrap(),
                        attribute: attribute.parse().unwrap(),
                        type_oid: 25,
                        format: 0,
                    }
                })
                .collect();
            backend::row_description(out, &columns);
        }
        "D" => backend::data_row(out, &values(rest)),
        "C" => backend::command_complete(out, rest.as_bytes()),
        "Z" => backend::ready_for_query(
            out,
            backend::parse_ready_for_query(rest.as_bytes()).expect("a status"),
        ),
        "E" | "N" => {
            let (sqlstate, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let (position, text) = match text.split_once(' ') {
                Some((word, text)) if word.parse::<u32>().is_ok() => (Some(word), text),
                _ => (None, text),
            };
            let severity: &[u8] = match (tag, sqlstate) {
                // `admin_shutdown`
                ("E", "57P01") => b"FATAL",
                ("E", _) => b"ERROR",
                _ => b"NOTICE",
            };
            let mut fields = vec![
                (b'S', severity),
                (b'V', severity),
                (b'C', sqlstate.as_bytes()),
                (b'M', text.as_bytes()),
            ];
            fields.extend(position.map(|position| (b'P', position.as_bytes())));
            backend::error_fields(out, tag.as_bytes()[0], fields.into_iter());
        }
        "S" => {
            let (of, value) = rest.split_once(' ').expect("name and value");
            backend::parameter_status(out, of.as_bytes(), value.as_bytes());
        }
        "G" | "H" | "W" => {
            backend::copy_response(out, tag.as_bytes()[0], rest.parse().unwrap_or(1))
        }
        "d" => backend::copy_data(out, rest.replace('~', "\n").as_bytes()),
        "V" => backend::function_call_response(out, Some(rest.as_bytes())),
        "K" => backend::backend_key_data(out, 7, rest.as_bytes()),
        "R" => backend::authentication(out, 0, b""),
        "SASL" => backend::authentication(out, backend::SASL, rest.replace(' ', "\0").as_bytes()),
        "A" => {
            out.put_slice(b"A\0\0\0\x0b\0\0\0\x07c\0\0");
        }
        "raw" => out.put_slice(rest.as_bytes()),
        _ => panic!("no such message: {line}"),
    }
}

/// The lines that say what a stream holds; what is left of it stays in `stream`.
pub fn show(direction: Direction, stream: &mut BytesMut) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match frame::split(direction, stream) {
            Ok(Some(frame)) => lines.push(match direction {
                Direction::FromClient => show_client(&frame),
                Direction::FromServer => show_server(&frame),
            }),
            Ok(None) => return lines,
            Err(_) => {
                lines.push(format!("raw {:?}", stream.split()));
                return lines;
            }
        }
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace('\n', "~")
}

fn named(name: &[u8]) -> String {
    if name.is_empty() {
        "-".to_owned()
    } else {
        lossy(name)
    }
}

pub fn show_startup(packet: &[u8]) -> String {
    let startup = Startup::parse(packet).expect("a startup packet");
    let pairs = startup
        .parameters()
        .map(|(name, value)| format!(" {}={}", lossy(name), lossy(value)));
    format!("startup{}", pairs.collect::<String>())
}

pub fn show_client(frame: &Frame) -> String {
    use frontend::*;
    let body = frame.body();
    let tag = frame.tag() as char;
    match frame.tag() {
        QUERY => format!("Q {}", lossy(parse_query(body).unwrap())),
        PARSE => {
            let parse = Parse::parse(body).unwrap();
            format!("P {} {}", named(parse.name), lossy(parse.text))
        }
        BIND => {
            let bind = Bind::parse(body).unwrap();
            let values = show_values(bind.parameters.into_iter());
            format!("B {} {}{values}", named(bind.portal), named(bind.statement))
        }
        EXECUTE => format!("E {}", named(parse_execute(body).unwrap().0)),
        DESCRIBE | CLOSE => match Target::parse(body).unwrap() {
            Target::Statement(of) => format!("{tag} S {}", named(of)),
            Target::Portal(of) => format!("{tag} P {}", named(of)),
        },
        FUNCTION_CALL => format!("F {}", u32::from_be_bytes(body[..4].try_into().unwrap())),
        _ => format!("{tag} {}", lossy(body)).trim_end().to_owned(),
    }
}

fn show_values<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> String {
    values
        .map(|value| format!(" {}", value.map_or("NULL".to_owned(), lossy)))
        .collect()
}

pub fn show_server(frame: &Frame) -> String {
    use backend::*;
    let body = frame.body();
    let tag = frame.tag() as char;
    match frame.tag() {
        ROW_DESCRIPTION => {
            let columns = parse_row_description(body)
                .map(|column| format!(" {}", lossy(column.unwrap().name)));
            format!("T{}", columns.collect::<String>())
        }
        DATA_ROW => format!("D{}", show_values(parse_data_row(body))),
        COMMAND_COMPLETE => format!("C {}", lossy(parse_command_complete(body).unwrap())),
        ERROR_RESPONSE | NOTICE_RESPONSE => {
            let fields = Fields::parse(body).unwrap();
            let position = fields
                .position()
                .map(|position| format!(" {position}"))
                .unwrap_or_default();
            format!(
                "{tag} {}{position} {}",
                lossy(fields.sqlstate()),
                lossy(fields.get(b'M').unwrap())
            )
        }
        PARAMETER_STATUS => {
            let (name, value) = parse_parameter_status(body).unwrap();
            format!("S {} {}", lossy(name), lossy(value))
        }
        READY_FOR_QUERY | COPY_DATA => format!("{tag} {}", lossy(body)),
        AUTHENTICATION => format!("R {}", lossy(&body[4..]).replace('\0', " "))
            .trim_end()
            .to_owned(),
        _ => tag.to_string(),
    }
}
