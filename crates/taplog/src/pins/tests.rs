use std::collections::HashSet;

use expect_test::expect;

use super::*;

/// Zeroed memory for one, as the board has it.
fn pins() -> Box<Pins> {
    // SAFETY: all of it is numbers, of which zero is one.
    unsafe { Box::<Pins>::new_zeroed().assume_init() }
}

const SECOND: i64 = 1_000_000_000;

/// Readings with nothing written before them.
fn readings<const N: usize>(times: [i64; N]) -> [Reading; N] {
    times.map(|time| Reading {
        time,
        ..Reading::default()
    })
}

#[test]
fn a_replayed_request_draws_what_it_drew_and_no_two_draws_are_the_same() {
    let (recorded, replayed) = (pins(), pins());
    let key = [7; KEY];
    recorded.set_key(&key);
    let mut places = HashSet::new();
    // In one order when recorded, in another one in the replay.
    for round in 0..3 {
        for request in 1..=4u64 {
            let draw = recorded.draw(request, Caller::UNKNOWN).unwrap();
            assert!(
                places.insert((draw.request, draw.block)),
                "{request} {round}"
            );
        }
    }
    for request in (1..=4).rev() {
        let again = request + 100;
        let recorded = Recorded {
            request: again,
            recorded_as: request,
            key: Some(&key),
            arrived: 0,
            readings: &[],
        };
        replayed.begin(&recorded, 0);
        for _ in 0..3 {
            let draw = replayed.draw_again(again, Caller::UNKNOWN).unwrap();
            assert!(places.remove(&(draw.request, draw.block)));
            assert_eq!(draw.key, key);
        }
    }
    assert!(places.is_empty());
}

/// A request draws for a cache that another one fills in the replay.
#[test]
fn draws_are_counted_by_the_code_that_asks() {
    let [recorded, replayed] = [pins(), pins()];
    let [cache, id] = [1, 2].map(Caller);
    let bytes = |draw: Option<Draw>| draw.map(|draw| (draw.key, draw.request, draw.block));
    for (key, is_counted) in [(count_by_caller([7; KEY]), true), ([7; KEY], false)] {
        recorded.set_key(&key);
        let request = if is_counted { 1 } else { 2 };
        let drawn = [cache, id, id].map(|code| bytes(recorded.draw(request, code)));
        assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2]);
        let script = Recorded {
            request: 9,
            recorded_as: request,
            key: Some(&key),
            arrived: 0,
            readings: &[],
        };
        replayed.begin(&script, 0);
        let again = [id, id].map(|code| bytes(replayed.draw_again(9, code)));
        assert_eq!(again == drawn[1..], is_counted);
        // Those of an earlier recording are in the order in which they were made.
        assert_eq!(again == drawn[..2], !is_counted);
    }
}

/// A request's goroutines draw by many functions, and in another order in the replay.
#[test]
fn many_codes_of_a_request_are_counted() {
    let [recorded, replayed] = [pins(), pins()];
    let key = count_by_caller([7; KEY]);
    recorded.set_key(&key);
    let bytes = |draw: Option<Draw>| draw.map(|draw| (draw.key, draw.request, draw.block));
    let codes = || (1..60).map(|nth| Caller(nth * 1021));
    let drawn: Vec<_> = codes().map(|code| bytes(recorded.draw(1, code))).collect();
    let script = Recorded {
        request: 9,
        recorded_as: 1,
        key: Some(&key),
        arrived: 0,
        readings: &[],
    };
    replayed.begin(&script, 0);
    let again = codes()
        .rev()
        .map(|code| bytes(replayed.draw_again(9, code)));
    let mut again: Vec<_> = again.collect();
    again.reverse();
    assert_eq!(again, drawn);
}

/// What of a request is counted by code is no longer when a later request has its place. Later
/// recorders of a trace have their number in the upper bits.
#[test]
fn no_draw_is_given_twice_whichever_code_asks() {
    for recorder in [0, 1, u16::MAX] {
        no_draw_is_given_twice_by(u64::from(recorder) << 48);
    }
}

fn no_draw_is_given_twice_by(recorder: u64) {
    let pins = pins();
    pins.set_key(&count_by_caller([7; KEY]));
    let mut places = HashSet::new();
    for request in [5, 5 + COUNTED as u64, 5, 6].map(|request| recorder | request) {
        for code in (0..100).map(Caller) {
            for _ in 0..3 {
                if let Some(draw) = pins.draw(request, code) {
                    assert!(places.insert((draw.key, draw.request, draw.block)));
                }
            }
        }
    }
    assert_eq!(places.len(), 3 * 100 * 3);
}

#[test]
fn who_comes_back_after_a_later_request_took_its_place_draws_from_the_kernel() {
    let pins = pins();
    pins.set_key(&[1; KEY]);
    let late = 5 + COUNTED as u64;
    assert!(pins.draw(5, Caller::UNKNOWN).is_some());
    assert!(pins.draw(late, Caller::UNKNOWN).is_some());
    assert!(pins.draw(5, Caller::UNKNOWN).is_none());
    assert_ne!(pins.draw(late, Caller::UNKNOWN).unwrap().block, 0);
}

#[test]
fn without_a_key_nothing_is_pinned() {
    let pins = pins();
    assert!(pins.draw(1, Caller::UNKNOWN).is_none());
    assert!(pins.note_reading(1).is_none());
    assert!(pins.draw_again(1, Caller::UNKNOWN).is_none());
    assert!(
        pins.read_again(1, Caller::UNKNOWN, Reads::Instant, 0, 0)
            .is_none()
    );
}

#[test]
fn only_so_many_draws_and_readings_of_a_request_count() {
    let pins = pins();
    pins.set_key(&[1; KEY]);
    let noted = (0..READINGS + 3).filter_map(|_| pins.note_reading(9));
    assert_eq!(
        noted.collect::<Vec<_>>(),
        (0..READINGS as u16).collect::<Vec<_>>()
    );
    let drawn = (0..COUNT_MASK + 3).filter_map(|_| pins.draw(9, Caller::UNKNOWN));
    assert_eq!(drawn.count() as u64, COUNT_MASK);
}

#[test]
fn readings_are_those_of_the_recording_and_go_on_from_there() {
    let pins = pins();
    let times = [100 * SECOND, 102 * SECOND, 101 * SECOND];
    let recorded = Recorded {
        request: 3,
        recorded_as: 3,
        key: None,
        arrived: 99 * SECOND,
        readings: &readings(times),
    };
    pins.begin(&recorded, 0);
    pins.set_ahead(-900 * SECOND, 0);
    let real = 1000 * SECOND;
    assert_eq!(pins.ahead(3, real), -900 * SECOND);
    for (at, reading) in times.into_iter().enumerate() {
        assert_eq!(
            pins.read_again(3, Caller::UNKNOWN, Reads::Second, real, at as i64),
            Some(reading)
        );
        assert_eq!(pins.ahead(3, real), reading - real);
    }
    // The latest was given when the monotonic clock showed 1.
    assert_eq!(
        pins.read_again(3, Caller::UNKNOWN, Reads::Second, real, 6),
        Some(102 * SECOND + 5)
    );
    assert_eq!(
        pins.read_again(3, Caller::UNKNOWN, Reads::Second, real, 4),
        Some(102 * SECOND + 5)
    );
    let given = Given {
        draws: 0,
        readings: 3,
        beyond: 2,
    };
    assert_eq!(pins.given(), given);
    assert_eq!(
        pins.read_again(4, Caller::UNKNOWN, Reads::Instant, real, 6),
        None
    );
    assert_eq!(pins.ahead(4, real), -900 * SECOND);
    pins.advance(-800 * SECOND);
    pins.advance(-850 * SECOND);
    assert_eq!(pins.ahead(0, real), -800 * SECOND);
}

#[test]
fn a_request_without_readings_has_the_time_at_which_it_arrived() {
    let pins = pins();
    let mut recorded = Recorded {
        request: 3,
        recorded_as: 3,
        key: Some(&[7; KEY]),
        arrived: 99 * SECOND,
        readings: &[],
    };
    pins.begin(&recorded, 50);
    assert_eq!(
        pins.read_again(3, Caller::UNKNOWN, Reads::Instant, 0, 57),
        Some(99 * SECOND + 7)
    );
    // Where none were noted, it has what the clock of the service shows.
    recorded.key = None;
    pins.begin(&recorded, 50);
    assert_eq!(
        pins.read_again(3, Caller::UNKNOWN, Reads::Instant, 0, 57),
        None
    );
}

#[test]
fn readings_are_kept_as_distances() {
    let base = 1_800_000_000 * SECOND;
    let times = [base + 1, base, base + 300_000, i64::MIN, i64::MAX, 0];
    let places = [0, 7, 7, u16::MAX, 0, 0].map(Place);
    let callers = [0, 0, 1, u16::MAX, u16::MAX, 0].map(Caller);
    let made: Vec<Reading> = (times.into_iter().zip(places).zip(callers))
        .map(|((time, place), caller)| Reading {
            time,
            place,
            caller,
        })
        .collect();
    let bytes = encode_readings(base, &made);
    assert_eq!(decode_readings(base, &bytes).unwrap(), made);
    assert_eq!(encode_readings(base, &made[..2]).len(), 3 + 1 + 5);
    for cut in [bytes.len() - 1, 5] {
        assert_eq!(decode_readings(base, &bytes[..cut]), None);
    }
    assert_eq!(decode_readings(base, &[0xff; 12]), None);
    assert_eq!(decode_readings(base, &[]), Some(Vec::new()));
    // There were no callers, and before that places had one byte.
    let two_bytes: &[u8] = &[0x80, 0, 4 << 1, 2 << 2 | 1, 7, 1];
    let one_byte: &[u8] = &[4 << 1, 2 << 2 | 1, 7];
    for (bytes, place) in [(two_bytes, 263), (one_byte, 7)] {
        let earlier = decode_readings(base, bytes).unwrap();
        let times: Vec<i64> = earlier.iter().map(|one| one.time - base).collect();
        assert_eq!((times, earlier[1].place), (vec![2, 4], Place(place)));
        assert_eq!(earlier[1].caller, Caller::UNKNOWN);
    }
}

/// What a request reads behind each of these, in this order; `-`: behind nothing, `+`: behind the
/// same write. With `:` behind it the code that asks.
#[track_caller]
fn check(recorded: &str, replayed: &str, expect: expect_test::Expect) {
    let place = |word: &str| match word.split(':').next().unwrap() {
        "-" => Place::BEGINNING,
        text => behind(text.as_bytes()),
    };
    let caller = |word: &str| {
        let name = word.split_once(':').map(|(_, name)| name.bytes());
        name.map_or(Caller::UNKNOWN, |name| {
            Caller::of(name.map(u64::from).sum())
        })
    };
    let pins = pins();
    let made: Vec<Reading> = (1..)
        .zip(recorded.split(' '))
        .map(|(time, word)| Reading {
            time,
            place: place(word),
            caller: caller(word),
        })
        .collect();
    let recorded = Recorded {
        request: 3,
        recorded_as: 3,
        key: None,
        arrived: 0,
        readings: &made,
    };
    pins.begin(&recorded, 0);
    let mut shown = Vec::new();
    for word in replayed.split(' ') {
        if !word.starts_with('+') {
            pins.writes(3, place(word));
        }
        let read = pins.read_again(3, caller(word), Reads::Instant, 0, 0);
        let read = read.unwrap();
        shown.push(format!("{word}{read}"));
    }
    expect.assert_eq(&shown.join(" "));
}

/// A cache looks whether what it has is too old, and asks the database if so.
#[test]
fn a_reading_is_known_by_the_code_that_asks() {
    let recorded = "-:cache +:cache a:cache b:row b:answer";
    // It has what another request has asked for, so there is no write to know it by, and it looks
    // once less or once more.
    check(
        recorded,
        "-:cache +:row +:answer",
        expect!["-:cache1 +:row4 +:answer5"],
    );
    check(
        recorded,
        "-:cache +:cache +:cache +:cache +:row +:answer",
        expect!["-:cache1 +:cache2 +:cache3 +:cache4 +:row4 +:answer5"],
    );
    // The same code reads here and there.
    check("a:x b:x a:x", "b:x a:x + a:x", expect!["b:x2 a:x1 +3 a:x3"]);
    // Code that did not ask before, as changed code, and a recording that tells of none.
    check("-:x a:y", "-:z +:x a:y", expect!["-:z1 +:x1 a:y2"]);
    check("- a b", "-:x a:y b:y", expect!["-:x1 a:y2 b:y3"]);
}

#[test]
fn a_reading_is_known_by_what_was_written_before_it() {
    check("- a a b c", "- a + b c", expect!["-1 a2 +3 b4 c5"]);
    // One more, and one less.
    check("- a a b c", "- a + + b c", expect!["-1 a2 +3 +4 b4 c5"]);
    check("- a a b c", "- a b c", expect!["-1 a2 b4 c5"]);
    // A cache is filled by another request than originally.
    check("- a cache b", "- a + b", expect!["-1 a2 +3 b4"]);
    check("- a a b", "- a cache b", expect!["-1 a2 cache3 b4"]);
    // The same statement again: one more reading behind the first, and a cache behind the second.
    check(
        "begin a begin a",
        "begin a begin a",
        expect!["begin1 a2 begin3 a4"],
    );
    check(
        "a b a cache c",
        "a + + + b a + c",
        expect!["a1 +2 +3 +4 b2 a3 +4 c5"],
    );
}

/// Behind what is written to a connection that has prepared nothing.
fn behind(bytes: &[u8]) -> Place {
    let place = Place::behind(bytes, 1, &Statements::new());
    place.expect("something was written")
}

#[test]
fn numbers_in_names_do_not_count() {
    let declare = |number: &str| behind(format!("DECLARE c_{number} CURSOR").as_bytes());
    assert_eq!(declare("140021"), declare("139877"));
    assert_eq!(declare("9"), declare("10"));
    let deallocate = |number: u32| {
        let text = format!("DEALLOCATE pdo_stmt_{number:08x}");
        behind(text.as_bytes())
    };
    let places = [0x3e, 0x3f, 0xa1, 0xabc].map(deallocate);
    assert_eq!(places, [places[0]; 4]);
    assert_ne!(behind(b"POST /?f=a"), behind(b"POST /?f=b"));
    assert_ne!(behind(b"SELECT a"), behind(b"SELECT b"));
    let startup = b"\0\0\0\x08\0\x03\0\0user\0";
    assert_eq!(behind(startup), Place::CONNECTING);
    let encrypted = |byte: u8| behind(&[0x17, 3, 3, 0, 1, byte]);
    assert_eq!([1, 2].map(encrypted), [Place::BEGINNING; 2]);
    assert_ne!(behind(b"POST /a HTTP/1.1"), behind(b"POST /b HTTP/1.1"));
}

/// A service that asks for its time between two of a few hundred statements is not given another's.
#[test]
fn statements_have_places_of_their_own() {
    let texts = (0..300).map(|number| {
        let letters = [b'a' + (number % 26) as u8, b'a' + (number / 26) as u8];
        [b"SELECT * FROM ", &letters[..]].concat()
    });
    let places: std::collections::HashSet<u16> = texts.map(|text| behind(&text).0).collect();
    assert!(places.len() >= 295, "{}", places.len());
}

/// Drivers prepare what a connection has not prepared yet, by names of their own, or send a text.
#[test]
fn what_runs_counts_and_not_how_it_is_sent() {
    let message = |kind: u8, body: &str| {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind][..], &length, body.as_bytes()].concat()
    };
    let parse = |name: &str, text: &str| message(b'P', &format!("{name}\0{text}\0"));
    let bind = |name: &str, value: &str| {
        let run = [message(b'D', "P\0"), message(b'E', "\0"), message(b'S', "")];
        [message(b'B', &format!("\0{name}\0{value}")), run.concat()].concat()
    };
    let known = Statements::new();
    let on = |stream: u64, parts: &[Vec<u8>]| Place::behind(&parts.concat(), stream, &known);

    let select = "SELECT now()";
    let text = on(1, &[message(b'Q', "SELECT now()\0")]);
    assert_eq!(on(1, &[parse("", select), bind("", "Ada")]), text);
    // What is only prepared does not run.
    assert_eq!(on(1, &[parse("__asyncpg_stmt_1f__", select)]), None);
    assert_eq!(on(1, &[bind("__asyncpg_stmt_1f__", "Ada")]), text);
    assert_eq!(on(1, &[bind("__asyncpg_stmt_1f__", "Grace")]), text);
    assert_eq!(on(2, &[parse("S_3", select), bind("S_3", "Ada")]), text);
    assert_ne!(on(2, &[parse("S_3", "SELECT 1"), bind("S_3", "Ada")]), text);
    assert_ne!(on(1, &[message(b'Q', "SELECT 1\0")]), text);
    // Of what nobody has seen prepared the values count.
    let unknown = |value: &str| on(3, &[bind("s", value)]);
    assert_eq!(unknown("Ada"), unknown("Ada"));
    assert_ne!(unknown("Ada"), unknown("Grace"));
    assert_eq!(on(1, &[message(b'S', "")]), None);
}

/// A pool sets up a connection while the request that wanted one goes on with another.
#[test]
fn what_settles_a_session_is_no_place() {
    let message = |kind: u8, body: &str| {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind][..], &length, body.as_bytes()].concat()
    };
    let known = Statements::new();
    let on = |parts: &[Vec<u8>]| Place::behind(&parts.concat(), 1, &known);
    for text in [
        "set search_path to \"public\"",
        "SHOW max_identifier_length",
        "select version();",
    ] {
        assert_eq!(on(&[message(b'Q', &format!("{text}\0"))]), None, "{text}");
        let parse = message(b'P', &format!("s\0{text}\0"));
        let bind = message(b'B', "\0s\0Ada");
        assert_eq!(on(&[parse, bind]), None, "{text}");
    }
    let both = on(&[message(b'Q', "SET a = 1\0"), message(b'Q', "BEGIN\0")]);
    assert_eq!(both, on(&[message(b'Q', "BEGIN\0")]));
    assert!(both.is_some());
    assert!(on(&[message(b'Q', "SETTLE\0")]).is_some());
}

/// Two tasks of a request. In the replay one of them finds a cache filled, and writes less.
#[test]
fn work_apart_from_a_request_has_readings_of_its_own() {
    let pins = pins();
    let (one, other) = (Walk::new([1; KEY]), Walk::new([17; KEY]));
    let (read, insert) = (behind(b"SELECT a"), behind(b"INSERT b"));
    let at = |mut walk: Walk, place: Place| {
        walk.writes(place);
        walk.asks()
    };
    let own = Asks {
        place: insert,
        caller: Caller::UNKNOWN,
    };
    let asked = [at(one, read), at(other, read), at(one, insert), own];
    let made = (1..).zip(asked);
    let made: Vec<Reading> = made
        .map(|(time, Asks { place, caller })| Reading {
            time,
            place,
            caller,
        })
        .collect();
    let recorded = Recorded {
        request: 3,
        recorded_as: 3,
        key: None,
        arrived: 0,
        readings: &made,
    };
    pins.begin(&recorded, 0);
    let (mut one, mut other) = (one, other);
    other.writes(read);
    let read_apart = |walk: &mut Walk| pins.read_apart(3, walk, Reads::Instant, 0, 0);
    assert_eq!(read_apart(&mut other), Some(2));
    assert_eq!(read_apart(&mut one), Some(1), "it was lent");
    one.writes(insert);
    assert_eq!(read_apart(&mut one), Some(3));
    pins.writes(3, insert);
    assert_eq!(
        pins.read_again(3, Caller::UNKNOWN, Reads::Instant, 0, 0),
        Some(4)
    );
}

#[test]
fn many_statements_are_known_at_a_time() {
    let message = |kind: u8, body: String| {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind][..], &length, body.as_bytes()].concat()
    };
    let known = Statements::new();
    let names = || (0..20u64).flat_map(|stream| (0..100).map(move |nth| (stream, nth)));
    for (stream, nth) in names() {
        let parse = message(b'P', format!("S_{nth}\0SELECT 1\0"));
        assert_eq!(Place::behind(&parse, stream, &known), None);
    }
    let expected = behind(&message(b'Q', "SELECT 1\0".to_owned()));
    let places = names().map(|(stream, nth)| {
        let bind = message(b'B', format!("\0S_{nth}\0its values"));
        Place::behind(&bind, stream, &known)
    });
    let others = places.filter(|place| *place != Some(expected)).count();
    assert_eq!(others, 0);
}

/// A library reads the seconds once more, or once less, than originally.
#[test]
fn seconds_and_instants_have_an_order_each() {
    let pins = pins();
    let readings = readings([
        100 * SECOND + 1,
        100 * SECOND,
        100 * SECOND + 7,
        101 * SECOND,
    ]);
    let recorded = Recorded {
        request: 3,
        recorded_as: 3,
        key: None,
        arrived: 99 * SECOND,
        readings: &readings,
    };
    pins.begin(&recorded, 0);
    let read = |reads| pins.read_again(3, Caller::UNKNOWN, reads, 0, 0).unwrap();
    assert_eq!(read(Reads::Instant), 100 * SECOND + 1);
    assert_eq!(read(Reads::Instant), 100 * SECOND + 7);
    assert_eq!(read(Reads::Second), 100 * SECOND);
    assert_eq!(read(Reads::Second), 101 * SECOND);
    assert_eq!(read(Reads::Second), 101 * SECOND);
}

/// A generator of timestamps has given one to a later request already.
#[test]
fn who_waits_for_the_clock_gets_to_where_it_is_for_all_and_beyond() {
    let pins = pins();
    let recorded = Recorded {
        request: 3,
        recorded_as: 3,
        key: None,
        arrived: 99 * SECOND,
        readings: &readings([100 * SECOND + 1]),
    };
    pins.begin(&recorded, 0);
    pins.set_ahead(-900 * SECOND, 0);
    let until = |later: i64, step: i64| {
        let read = |nth: i64| {
            let (caller, real) = (Caller::UNKNOWN, 1030 * SECOND);
            let shown = pins.read_again(3, caller, Reads::Instant, real, nth * step);
            shown.unwrap()
        };
        (0..10_000).find(|&nth| read(nth) > later)
    };
    // Who sleeps in between waits as long as it takes.
    assert_eq!(until(110 * SECOND, 10_000_000), Some(1000));
    assert!(until(129 * SECOND, 1000).is_some_and(|reads| reads < 300));
    assert!(until(131 * SECOND, 1000).is_some_and(|reads| reads < 1300));
    pins.begin(&recorded, 0);
    assert_eq!(until(129 * SECOND, 10_000_000), Some(2900));
}

#[test]
fn a_session_is_had_once_the_server_says_so() {
    let accepted = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x16";
    assert_eq!(Place::behind_answer(accepted), Some(Place::CONNECTED));
    let last_of_login = [&b"R\0\0\0\x0c\0\0\0\x0cv="[..], accepted].concat();
    assert_eq!(Place::behind_answer(&last_of_login), Some(Place::CONNECTED));
    for other in [
        &b""[..],
        b"N",
        b"R\0\0\0\x17\0\0\0\x0aSCRAM",
        b"Z\0\0\0\x05I",
    ] {
        assert_eq!(Place::behind_answer(other), None, "{other:?}");
    }
}

#[test]
fn times_of_a_processor_have_an_order_of_their_own_and_move_no_clock() {
    let pins = pins();
    let used = |time| Reads::Processor.kept(time);
    let times = [used(5), 100 * SECOND + 1, used(7)];
    let recorded = Recorded {
        request: 3,
        recorded_as: 3,
        key: None,
        arrived: 99 * SECOND,
        readings: &readings(times),
    };
    pins.begin(&recorded, 0);
    let read = |reads, real| pins.read_again(3, Caller::UNKNOWN, reads, real, 0);
    assert_eq!(read(Reads::Processor, 50), Some(5));
    assert_eq!(read(Reads::Processor, 60), Some(7));
    assert_eq!(read(Reads::Processor, 70), Some(70));
    assert_eq!(read(Reads::Instant, 900 * SECOND), Some(100 * SECOND + 1));
    assert_eq!(pins.ahead(3, 900 * SECOND), -800 * SECOND + 1);
    let kept = encode_readings(99 * SECOND, &readings(times));
    assert_eq!(
        decode_readings(99 * SECOND, &kept),
        Some(readings(times).to_vec())
    );
}

#[test]
fn readings_are_kept_until_many_more_came() {
    let pins = pins();
    let many = vec![readings([7 * SECOND])[0]; READINGS];
    let begin = |request, readings: &[Reading]| {
        let recorded = Recorded {
            request,
            recorded_as: request,
            key: None,
            arrived: 9 * SECOND,
            readings,
        };
        pins.begin(&recorded, 0);
    };
    let read = |request| pins.read_again(request, Caller::UNKNOWN, Reads::Second, 0, 0);
    begin(1, &readings([SECOND, 2 * SECOND]));
    let rounds = (KEPT / READINGS) as u64;
    (2..2 + rounds).for_each(|request| begin(request, &many));
    assert_eq!(read(1), Some(SECOND));
    begin(2 + rounds, &many);
    // What is not kept any more is as what was never recorded.
    assert_eq!(read(1), Some(9 * SECOND));
    assert_eq!(read(2 + rounds), Some(7 * SECOND));
}

/// A thread that goes on for ever, and draws by one function.
#[test]
fn what_has_drawn_too_often_by_one_code_is_not_counted_from_the_beginning_again() {
    let counts = ByCaller::<4>::new();
    let of = |caller| counts.count(1, Caller(caller));
    let counted = (0..1 << 21).map_while(|_| of(5));
    assert!(counted.enumerate().all(|(nth, count)| count == nth as u64));
    assert_eq!((of(5), of(5), of(6)), (None, None, Some(0)));
}

#[test]
fn a_service_that_starts_more_slowly_does_not_get_ahead() {
    let pins = pins();
    pins.set_ahead(-900 * SECOND, 110 * SECOND);
    let shows = |real| real + pins.ahead(0, real);
    assert_eq!(shows(1000 * SECOND), 100 * SECOND);
    assert_eq!(shows(1010 * SECOND), 110 * SECOND);
    assert_eq!(shows(1026 * SECOND), 111 * SECOND);
    pins.set_ahead(-916 * SECOND, 0);
    assert_eq!(shows(1026 * SECOND), 110 * SECOND);
    assert_eq!(shows(1060 * SECOND), 144 * SECOND);
}
