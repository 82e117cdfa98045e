use super::*;

/// Memory for a board, as a mapping would be.
fn memory() -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(Board::SIZE, 4096).unwrap();
    // SAFETY: the size is not zero. The memory is never given back.
    unsafe { std::alloc::alloc_zeroed(layout) }
}

fn inet(port: u16, last: u8) -> Vec<u8> {
    let mut bytes = AF_INET.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&[127, 0, 0, last]);
    bytes.extend_from_slice(&[0; 8]);
    bytes
}

fn inet6(port: u16, flow: u32) -> Vec<u8> {
    let mut bytes = AF_INET6.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&flow.to_be_bytes());
    bytes.extend_from_slice(&std::net::Ipv6Addr::LOCALHOST.octets());
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

fn unix(path: &str, zeros: usize) -> Vec<u8> {
    let mut bytes = AF_UNIX.to_ne_bytes().to_vec();
    bytes.extend_from_slice(path.as_bytes());
    bytes.resize(bytes.len() + zeros, 0);
    bytes
}

fn board() -> &'static Board {
    let mut redirect = Redirect::NONE;
    let from = [inet(5432, 1), inet6(5432, 0), unix("/run/.s.PGSQL.5432", 0)];
    let to = [inet(6000, 1), inet6(6000, 0), unix("/tmp/gate", 1)];
    for (place, address) in redirect.from.iter_mut().zip(&from) {
        *place = Address::new(address).unwrap();
    }
    for (place, address) in redirect.to.iter_mut().zip(&to) {
        *place = Address::new(address).unwrap();
    }
    // SAFETY: the memory is new, aligned, and stays.
    unsafe { Board::make(memory(), Purpose::Record { first: 5 }, &redirect) }
}

#[test]
fn a_connection_to_the_database_gets_to_the_gate_of_its_family() {
    let board = board();
    let gate = |to: &[u8]| board.redirected(to).map(|gate| gate.bytes().to_vec());
    assert_eq!(gate(&inet(5432, 1)), Some(inet(6000, 1)));
    assert_eq!(
        gate(&inet6(5432, 9)),
        Some(inet6(6000, 0)),
        "the flow is no matter"
    );
    let file = "/run/.s.PGSQL.5432";
    for zeros in [0, 1, 50] {
        assert_eq!(gate(&unix(file, zeros)), Some(unix("/tmp/gate", 1)));
    }
    for other in [inet(5433, 1), inet(5432, 2), inet6(5433, 0)] {
        assert_eq!(gate(&other), None);
    }
    assert_eq!(gate(&unix("/run/.s.PGSQL.54321", 0)), None);
    for odd in [&[][..], &[2], &[2, 0], &[1, 0], &[1, 0, 0]] {
        assert_eq!(gate(odd), None);
    }
}

#[test]
fn whose_turn_it_is_stands_at_the_connection() {
    let board = board();
    let line = Line::of_ports(40000, 5432).unwrap();
    assert_eq!(board.whose_turn(line), None, "nobody has connected");
    board.set_turn(line, 0);
    assert_eq!(board.whose_turn(line), Some(0));
    let number = board.take_number();
    assert_eq!((number, board.take_number()), (5, 6));
    board.set_turn(line, number);
    assert_eq!(board.whose_turn(line), Some(5));
    board.forget(line);
    assert_eq!(board.whose_turn(line), None);
}

#[test]
fn every_connection_has_a_line_of_its_own() {
    assert_eq!(Line::of_ports(0, 5432), None);
    let highest = Line::of_ports(u16::MAX, 0).unwrap();
    let lowest = Line::of_name(b"00000").unwrap();
    assert!(highest.number() < lowest.number());
    let last = Line::of_name(b"fffff").unwrap();
    board().set_turn(last, 1);
    assert_eq!(board().whose_turn(last), None, "each board has its own");
    assert_eq!(Line::of_number(last.number()), Some(last));
    assert_eq!(Line::of_number(last.number() + 1), None);
    assert_eq!(Line::of_number(0), None);
    for odd in [&b""[..], b"fff", b"ffffff", b"gggg0", b"+ffff", &[0xff; 5]] {
        assert_eq!(Line::of_name(odd), None, "{odd:?}");
    }
}

#[test]
fn a_replayed_service_is_found_where_it_listens() {
    // SAFETY: the memory is new, aligned, and stays.
    let board = unsafe { Board::make(memory(), Purpose::Replay, &Redirect::NONE) };
    assert!(board.replays() && !super::tests::board().replays());
    let listener = |asked, got, v6| Listener { asked, got, v6 };
    let all = [
        listener(80, 40001, false),
        listener(80, 40002, true),
        listener(u16::MAX, 1, true),
    ];
    assert!(all.iter().all(|one| board.listens(*one)));
    assert_eq!(board.listeners().collect::<Vec<_>>(), all);
    assert_eq!(
        (board.listener(80, true), board.listener(81, true)),
        (Some(40002), None)
    );
    let more = (0..100).filter(|&port| board.listens(listener(port + 100, 9, false)));
    assert_eq!(more.count(), LISTENERS - all.len(), "then there is no room");
}

#[test]
fn memory_that_is_no_board_is_none() {
    // SAFETY: the memory is new, aligned, and stays.
    assert!(unsafe { Board::of(memory()) }.is_none());
}

#[test]
fn a_request_of_a_replay_is_taken_once() {
    let board = board();
    for request in [1, 2, (7 << 48) | 1] {
        assert!(!board.is_taken(request));
        assert!(board.take(request));
        assert!(board.is_taken(request));
        assert!(!board.take(request));
    }
}

#[test]
fn a_port_may_lead_to_several_at_once() {
    let board = board();
    let line = |to| Line::of_ports(40000, to).unwrap();
    board.set_turn(line(6000), 5);
    assert_eq!(board.whose_turn(line(6000)), Some(5));
    assert_eq!(board.whose_turn(line(8000)), None, "it is not the same");
    board.forget(line(8000));
    assert_eq!(board.whose_turn(line(6000)), Some(5));
    assert_eq!(Line::of_number(line(6000).number()), Some(line(6000)));
}

#[test]
fn a_path_that_moved_is_found_by_the_path() {
    let board = board();
    assert_eq!(board.moved(b"/run/php.sock"), None);
    assert!(!board.moves(b"/run/php.sock", b"too long"));
    assert!(board.moves(b"/run/php.sock", b"00000"));
    assert!(board.moves(b"/run/other.sock", b"0beef"));
    assert_eq!(board.moved(b"/run/php.sock"), Some(*b"00000"));
    assert!(board.moves(b"/run/php.sock", b"fffff"));
    assert_eq!(board.moved(b"/run/php.sock"), Some(*b"fffff"));
    let but = |paths: &[&'static str]| {
        let paths = paths.iter().map(|path| path.as_bytes());
        board.all_moved_but(paths).collect::<Vec<_>>()
    };
    assert_eq!(but(&[]), [*b"fffff", *b"0beef"]);
    assert_eq!(but(&["/run/php.sock"]), [*b"0beef"]);
    for number in 2..LISTENERS {
        assert!(board.moves(format!("/run/{number}").as_bytes(), b"00001"));
    }
    assert!(!board.moves(b"/run/one-more", b"00001"), "there is no room");
}

#[test]
fn a_request_stands_at_the_connection_that_it_is_sent_by() {
    let board = board();
    for line in [Line::of_ports(40001, 9000), Line::of_name(b"0a1b2")] {
        let line = line.unwrap();
        assert_eq!(board.sent(line), None);
        board.sends(line, 7);
        assert_eq!(board.sent(line), Some(7));
        assert_eq!(board.whose_turn(line), None, "the service did not make it");
        board.has_sent(line);
        assert_eq!(board.sent(line), None);
        board.set_turn(line, 7);
        assert_eq!(board.sent(line), None, "the service made it");
    }
}

#[test]
fn a_request_is_sent_from_a_port_from_which_the_service_has_connected_elsewhere() {
    let board = board();
    let line = |to| Line::of_ports(40001, to).unwrap();
    for database in [6000, 6001, 9008] {
        board.sends(line(9000), 7);
        board.set_turn(line(database), 5);
        assert_eq!(board.sent(line(9000)), Some(7));
        board.sends(line(9000), 8);
        assert_eq!(board.whose_turn(line(database)), Some(5));
        board.forget(line(database));
        assert_eq!(board.sent(line(9000)), Some(8));
    }
    board.set_turn(line(6000), 5);
    board.set_turn(line(6379), 6);
    board.has_sent(line(9000));
    let both = (board.whose_turn(line(6000)), board.whose_turn(line(6379)));
    assert_eq!(both, (Some(5), Some(6)), "of a cache and of the database");
}

#[test]
fn a_path_that_is_refused_is_named_unless_the_service_listens_on_it() {
    let board = board();
    for path in [
        "/run/docker.sock",
        "/run/php.sock",
        "/run/php.sock",
        "/run/php",
    ] {
        board.refuse_path(path.as_bytes());
    }
    board.moves(b"/run/php.sock", b"00000");
    let refused: Vec<_> = board.refused_paths().collect();
    assert_eq!(refused, [&b"/run/docker.sock"[..], b"/run/php"]);
    for number in 0..2 * REFUSED {
        board.refuse_path(format!("/run/{number}").as_bytes());
    }
    assert_eq!(board.refused_paths().count(), REFUSED - 1);
}

#[test]
fn a_service_sees_the_client_that_was_there() {
    let memory = memory();
    // SAFETY: it is as long as a board, and nobody else's.
    let board = unsafe { Board::make(memory, Purpose::Replay, &Redirect::NONE) };
    let line = |from, to| Line::of_ports(from, to).unwrap();
    let client = |text: &str| text.parse::<SocketAddr>().unwrap();
    board.show(line(40001, 9000), client("10.0.0.7:1234"));
    board.show(line(40001, 9001), client("[2001:db8::1]:65535"));
    board.show(line(40002, 9000), client("[::ffff:10.0.0.8]:1"));
    assert_eq!(
        board.shown(line(40001, 9000)),
        Some(client("10.0.0.7:1234"))
    );
    assert_eq!(
        board.shown(line(40001, 9001)),
        Some(client("[2001:db8::1]:65535"))
    );
    assert_eq!(board.shown(line(40002, 9000)), Some(client("10.0.0.8:1")));
    assert_eq!(board.shown(line(40003, 9000)), None);
    assert_eq!(board.shown(line(40001, 9008)), None, "leads elsewhere");
    board.set_turn(line(40001, 9000), 0);
    assert_eq!(board.shown(line(40001, 9000)), None, "the service's own");
}

#[test]
fn a_connection_is_for_those_who_are_invited() {
    let memory = memory();
    // SAFETY: it is as long as a board, and nobody else's.
    let board = unsafe { Board::make(memory, Purpose::Replay, &Redirect::NONE) };
    let line = |from| Line::of_ports(from, 9000).unwrap();
    assert!(!board.invites() && board.is_invited(9000, 7));

    board.invite(line(40001), Guests::Only(7));
    assert!(board.invites() && board.is_invited(9000, 7));
    assert!(!board.is_invited(9000, 8));
    assert!(board.is_invited(9001, 8), "another listener");
    board.accepted(line(40002), 7);
    assert_eq!(board.accepted_by(), None, "another connection");
    board.accepted(line(40001), 7);
    assert_eq!(board.accepted_by(), Some(7));

    board.declined(9001);
    assert!(!board.is_elsewhere(), "another listener");
    board.declined(9000);
    assert!(board.is_elsewhere());

    board.invite(line(40003), Guests::AllBut(&[7, 9]));
    assert!(!board.is_elsewhere());
    assert_eq!(board.accepted_by(), None);
    assert!(!board.is_invited(9000, 7) && !board.is_invited(9000, 9));
    assert!(board.is_invited(9000, 8));
    board.welcome_all();
    assert!(!board.invites() && board.is_invited(9000, 7));
}
