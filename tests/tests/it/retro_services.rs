//! Retroaction of a service that is nobody's benchmark: the meeting rooms of `examples/python`,
//! with an ORM, a pool, retries and row locks, and the changes that a developer might try on its
//! double booking. The four kinds of change of R³ (section 4.1) are among them; none of them is
//! declared.

use hindcast_tests::http::Client;
use hindcast_tests::requests::Script;
use hindcast_tests::retro::{Report, SUCCESS};
use hindcast_tests::{Finished, Process, Stage, repository};

use super::{inside, inside_extension};

const DOUBLE: &str =
    "SELECT room_id, slot, count(*) FROM booking GROUP BY 1, 2 HAVING count(*) > 1";

const CLIENTS: usize = 8;
const ROUNDS_MAX: usize = 50;
/// Each client books twice in each.
const ROUNDS: usize = 4;

struct Rooms {
    stage: Stage,
    /// Bookings that were made, the first one included.
    bookings: u64,
}

impl Rooms {
    /// Guests of two rooms, until a slot was given to several of them.
    fn recorded() -> Self {
        let read = |file: &str| {
            std::fs::read_to_string(repository("examples/python").join(file))
                .expect("the example has this file")
        };
        let stage = Stage::new("rooms", &read("schema.sql"));
        let recorder = stage.record_inside(&[], "examples/python/run.sh");
        let script = Script::read(&repository("examples/python/requests"));
        let mut rounds = 0;
        let address = format!("127.0.0.1:{}", stage.service_port);
        let answers = script.run(&address, CLIENTS, ROUNDS_MAX, || {
            rounds += 1;
            rounds >= ROUNDS && !stage.sql(DOUBLE).is_empty()
        });
        recorder.interrupt().assert_code(SUCCESS);
        let booked = answers
            .iter()
            .filter(|((what, status), _)| what == "POST /bookings" && *status == 201)
            .map(|(_, times)| times);
        Self {
            bookings: booked.sum(),
            stage,
        }
    }

    /// A copy of the service with some of its text replaced.
    fn changed(&self, name: &str, replacements: &[(&str, &str)]) -> String {
        let path = repository("examples/python/app.py");
        let mut text = std::fs::read_to_string(path).expect("the example can be read");
        for (old, new) in replacements {
            assert!(text.contains(old), "the service has no such text: {old}");
            text = text.replace(old, new);
        }
        let folder = self.stage.folder().join(name);
        std::fs::create_dir_all(&folder).expect("the folder can be written");
        std::fs::write(folder.join("app.py"), text).expect("the folder can be written");
        format!(
            "cd {} && DATABASE_URL={} exec {} app:app --host 127.0.0.1 --port {} --no-access-log",
            folder.display(),
            self.stage.database_url(),
            repository("examples/python/.venv/bin/uvicorn").display(),
            self.stage.service_port
        )
    }

    fn run(&self, app: &str, more: &[&str]) -> Finished {
        let mut command = self.stage.hindcast(&["retro", "--app", app]);
        command
            .args(["--postgres", &self.stage.database_url(), "--check", DOUBLE])
            .arg("--trace")
            .arg(self.stage.trace())
            .arg("--app-log")
            .arg(self.stage.folder().join("changed-service.log"))
            .args(more);
        Process::start("retro", command, self.stage.folder()).wait()
    }

    /// The report on a changed service, which comes to its end.
    fn retro(&self, name: &str, replacements: &[(&str, &str)], more: &[&str]) -> Report {
        let app = self.changed(name, replacements);
        let more = [&["--json"], more].concat();
        let report = Report::of(&self.run(&app, &more).assert_code(SUCCESS));
        let left = "SELECT datname FROM pg_database WHERE datname LIKE 'hindcast_rewound%'";
        assert_eq!(self.stage.sql_in("postgres", left), "");
        report
    }
}

/// The first of a booking's three transactions, and how the second one begins.
const LOOKS: &str = r#"    with Sessions.begin() as session:
        if session.get(Room, new.room) is None:
            raise HTTPException(404, "there is no such room")
        same_slot = select(Booking).where(Booking.room_id == new.room, Booking.slot == new.slot)
        taken = session.scalars(same_slot.order_by(Booking.id)).first()
    if taken is not None:
        raise HTTPException(409, f"{taken.guest} was there first")
"#;
const INSERTS: &str = "    def insert(session: Session) -> Booking:
        booking =";
const COUNTS: &str = "    in_transaction(count)\n";

const ADDS: &str = "        session.add(booking)
        return booking
";
const COUNTED: &str = "        session.add(booking)
        session.flush()
        session.get_one(Room, new.room).bookings += 1
        session.add(Event(what=\"booked\", booking_id=booking.id))
        return booking
";

/// Looks in the transaction that inserts; `lock` is what the room is read with.
fn looks_and_inserts(lock: &str) -> String {
    format!(
        r#"    def insert(session: Session) -> Booking:
        if session.get(Room, new.room{lock}) is None:
            raise HTTPException(404, "there is no such room")
        same_slot = select(Booking).where(Booking.room_id == new.room, Booking.slot == new.slot)
        taken = session.scalars(same_slot.order_by(Booking.id)).first()
        if taken is not None:
            raise HTTPException(409, f"{{taken.guest}} was there first")
        booking ="#
    )
}

#[test]
fn code_that_only_looks_closer_is_a_faithful_replay() {
    let rooms = Rooms::recorded();
    let print = "    print('about to insert', new)\n    def insert(session: Session) -> Booking:\n        booking =";
    let report = rooms.retro("prints", &[(INSERTS, print)], &[]);
    assert_eq!(report.outcome(), "faithful", "{}", report.0["counts"]);
    let (then, now) = report.check(0);
    assert!(then >= 1 && now == then);

    // One query more in a transaction is more than that, also where the transaction is never
    // committed.
    let reports = "def report() -> dict[str, Any]:\n    with Sessions() as session:\n";
    let counts =
        format!("{reports}        session.scalars(select(func.count(Booking.id))).all()\n");
    let report = rooms.retro("counts", &[(reports, &counts)], &[]);
    assert_eq!(report.outcome(), "different", "{}", report.0["counts"]);
    assert_eq!(report.count("responses_changed"), 0);
    assert_eq!(report.0["state"]["tables_same"], 3);
}

#[test]
fn transactions_are_added_and_deleted_without_being_declared() {
    let rooms = Rooms::recorded();

    let audits = format!(
        "{COUNTS}    in_transaction(lambda session: session.add(Event(what=\"audited\", booking_id=booking.id)))\n"
    );
    let report = rooms.retro("audits", &[(COUNTS, &audits)], &[]);
    assert_eq!(report.count("added"), rooms.bookings);
    assert_eq!(report.count("retries"), 0);
    assert_eq!(report.count("deleted") + report.count("newly_failing"), 0);
    assert_eq!(report.table("public.event")["added"], rooms.bookings);
    assert_eq!(report.table("public.event")["removed"], 0);
    assert_eq!(report.0["state"]["tables_same"], 2);
    let by = &report.table("public.event")["rows"][0]["after_by"];
    assert_eq!(by["of"], "POST /bookings", "{by}");

    let report = rooms.retro("forgets", &[(COUNTS, "")], &[]);
    assert_eq!(report.count("deleted"), rooms.bookings);
    assert_eq!(report.count("added"), 0);
    assert_eq!(report.table("public.event")["removed"], rooms.bookings);
}

#[test]
fn transactions_are_told_apart_wherever_they_are_added() {
    let rooms = Rooms::recorded();
    let requests = |report: &Report| {
        let types = report.0["types"].as_array().expect("there are types");
        let bookings = types.iter().find(|of| of["name"] == "POST /bookings");
        bookings.expect("rooms were booked")["requests"]
            .as_u64()
            .unwrap()
    };

    // In front of all others: taken for the first recorded one, until that turns up.
    let asks = format!(
        "    in_transaction(lambda session: session.add(Event(what=\"asked\", booking_id=0)))\n{LOOKS}"
    );
    let report = rooms.retro("asks", &[(LOOKS, &asks)], &[]);
    assert_eq!(
        report.count("added"),
        requests(&report),
        "{}",
        report.0["transactions"]["groups"]
    );
    assert_eq!(report.count("deleted"), 0);
    assert_eq!(report.0["state"]["tables_same"], 2, "{}", report.0["state"]);
    let (then, now) = report.check(0);
    assert_eq!(then, now, "who was booked twice still is");

    // In the middle, where one was.
    let split = "    def count(session: Session) -> None:
        session.get_one(Room, new.room).bookings += 1

    in_transaction(count)
    in_transaction(lambda session: session.add(Event(what=\"booked\", booking_id=booking.id)))
";
    let whole = "    def count(session: Session) -> None:
        session.get_one(Room, new.room).bookings += 1
        session.add(Event(what=\"booked\", booking_id=booking.id))

    in_transaction(count)
";
    let report = rooms.retro("splits", &[(whole, split)], &[]);
    assert_eq!(
        report.count("added"),
        rooms.bookings,
        "{}",
        report.0["transactions"]["groups"]
    );
    assert_eq!(report.count("deleted"), 0);
    assert_eq!(report.0["state"]["tables_same"], 2, "{}", report.0["state"]);
}

#[test]
fn a_double_booking_is_left_by_merging_and_gone_with_a_lock_or_a_unique_key() {
    let rooms = Rooms::recorded();

    let merged = looks_and_inserts("");
    let report = rooms.retro("merged", &[(LOOKS, ""), (INSERTS, &merged)], &[]);
    let (then, now) = report.check(0);
    assert!(then >= 1 && now == then, "still there: {then}, {now}");
    assert_eq!(report.count("let_go"), 0);

    // A lock on the room's row keeps the others waiting, and then they look at a snapshot from
    // before: nothing of the row has changed.
    let locked = looks_and_inserts(", with_for_update=True");
    let report = rooms.retro("locked", &[(LOOKS, ""), (INSERTS, &locked)], &[]);
    let (_, now) = report.check(0);
    assert!(
        now >= 1,
        "a lock alone does not help under snapshot isolation"
    );

    // Unless the row is written, too, in the same transaction: who comes second is told so, and
    // tries again.
    let report = rooms.retro(
        "counted",
        &[
            (LOOKS, ""),
            (INSERTS, &locked),
            (ADDS, COUNTED),
            (COUNTS, ""),
        ],
        &[],
    );
    assert_eq!(report.check(0), (then, 0));
    assert!(report.count("retries") > 0);
    assert!(
        !report
            .groups("responses")
            .iter()
            .any(|what| what.contains("→ 500")),
        "nobody tries in vain: {:?}",
        report.groups("responses")
    );

    let inserts = "    booking = in_transaction(insert)\n";
    let refuses = "    try:\n        booking = in_transaction(insert)\n    except IntegrityError:\n        raise HTTPException(409, \"somebody was there first\")\n";
    let unique = rooms.stage.folder().join("unique.sql");
    std::fs::write(
        &unique,
        "CREATE UNIQUE INDEX once ON booking (room_id, slot)",
    )
    .expect("the folder can be written");
    let report = rooms.retro(
        "unique",
        &[(inserts, refuses)],
        &["--migrate", &unique.display().to_string()],
    );
    assert_eq!(report.check(0), (then, 0));
    let refused = report.count("newly_failing");
    assert!(refused > 0);
    assert!(
        report
            .groups("responses")
            .iter()
            .any(|what| what == "POST /bookings: 201 → 409"),
        "{:?}",
        report.groups("responses")
    );
}

#[test]
fn a_service_that_fails_now_and_then_is_reported_request_by_request() {
    let rooms = Rooms::recorded();
    // The server closes the connection after each of these.
    let fails = "    def count(session: Session) -> None:\n        if booking.id % 3 == 0:\n            raise RuntimeError(\"out of paper\")\n";
    let report = rooms.retro(
        "fails",
        &[("    def count(session: Session) -> None:\n", fails)],
        &[],
    );
    let changed = report.groups("responses");
    assert!(
        changed
            .iter()
            .any(|what| what == "POST /bookings: 201 → 500"),
        "{changed:?}"
    );
    assert!(
        !changed.iter().any(|what| what.contains("no response")),
        "{changed:?}"
    );
}

/// Items whose stock is not what their orders leave.
const LOST: &str = "SELECT id FROM item WHERE 1000 - stock <> (SELECT count(*) FROM orders WHERE item_id = item.id)";

const STOCK: &str = "CREATE TABLE item (id int PRIMARY KEY, stock int NOT NULL);
    CREATE TABLE orders (id serial PRIMARY KEY, item_id int NOT NULL REFERENCES item);
    CREATE TABLE voucher (id uuid PRIMARY KEY, item_id int NOT NULL REFERENCES item, made timestamptz NOT NULL);
    INSERT INTO item SELECT id, 1000 FROM generate_series(1, 3) id";

/// A shop whose code is in the stage's folder, and what is asked of it.
fn stock(stage: Stage, load: impl FnOnce(String)) -> Stage {
    let python = inside::python();
    let code = repository("tests/services/stock.py");
    std::fs::copy(code, stage.folder().join("stock.py")).unwrap();
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .args(["--", &python, "-m", "uvicorn", "stock:app"])
        .args(["--no-access-log", "--port"])
        .arg(stage.service_port.to_string())
        .current_dir(stage.folder())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    load(format!("127.0.0.1:{}", stage.service_port));
    recorder.interrupt().assert_code(SUCCESS);
    stage
}

/// Orders of few items by many clients.
fn order(address: &str) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut http = Client::new(address.to_owned());
            scope.spawn(move || {
                for round in 0..12 {
                    let item = 1 + (client + round) % 3;
                    let order = http.send("POST", &format!("/orders/{item}"), None);
                    assert_eq!(order.unwrap().status, 201);
                    let left = http.send("GET", &format!("/items/{item}"), None);
                    assert_eq!(left.unwrap().status, 200);
                }
            });
        }
    });
}

/// With the code as it is now, which no argument names.
fn retro_in_place(stage: &Stage, more: &[&str]) -> Finished {
    let mut command = stage.hindcast(&["retro", "--check", LOST, "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .env("DATABASE_URL", stage.database_url())
        .env("HINDCAST_POSTGRES", stage.database_url());
    Process::start("retro", command, stage.folder()).wait()
}

#[test]
fn orders_that_were_lost_are_lost_in_each_replay_and_none_is_with_a_lock() {
    let stage = inside_extension::stage("stock", STOCK, &[]);
    let stage = stock(stage, |address| order(&address));
    assert_ne!(stage.sql(LOST), "", "no order was lost");
    for _ in 0..3 {
        let replayed = inside::replay(&stage, &[]).assert_code(SUCCESS);
        assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
    }

    // Nothing was changed: the code is what was recorded.
    let same = Report::of(&retro_in_place(&stage, &["--json"]).assert_code(SUCCESS));
    assert_eq!(same.outcome(), "faithful", "{}", same.0);
    let (then, now) = same.check(0);
    assert!(then >= 1 && now == then);

    let file = stage.folder().join("stock.py");
    let code = std::fs::read_to_string(&file).unwrap();
    let reads = "item = session.get(Item, number)";
    assert!(code.contains(reads));
    let locks = "item = session.get(Item, number, with_for_update=True)";
    std::fs::write(&file, code.replace(reads, locks)).unwrap();
    let fixed = Report::of(&retro_in_place(&stage, &["--json"]).assert_code(SUCCESS));
    assert_eq!(fixed.outcome(), "different");
    assert_eq!(fixed.check(0).1, 0, "{}", fixed.0["checks"]);
    let ran = fixed.0["change"]["app"].as_str().unwrap_or_default();
    assert!(ran.contains("uvicorn"), "{ran}");

    // What is left is another number, and every order was taken. Nothing else is different.
    for group in fixed.groups("responses") {
        assert!(group.ends_with(": /left changed"), "{group}");
    }
    assert_eq!(
        fixed.table("public.item")["changed"],
        3,
        "{:#}",
        fixed.0["state"]
    );
    let state = &fixed.0["state"];
    assert_eq!(state["tables"].as_array().map(Vec::len), Some(1), "{state}");

    // Each transaction has come to something, and the ones that opened connections to nothing else.
    let counts = ["same", "changed", "deleted", "unnoticed"].map(|name| fixed.count(name));
    let ended: u64 = counts.iter().sum();
    assert_eq!(ended, fixed.count("transactions"), "{}", fixed.0["counts"]);
    let groups = fixed.groups("transactions");
    assert_eq!(groups.len(), 2, "{groups:?}");
}

#[test]
fn what_a_statement_draws_in_the_database_is_named_and_is_no_change_of_the_code() {
    // Without the extension: that would tell what was drawn.
    let stage = stock(Stage::new("vouchers", STOCK), |address| {
        let mut http = Client::new(address);
        for round in 0..9 {
            let voucher = http.send("POST", &format!("/vouchers/{}", 1 + round % 3), None);
            assert_eq!(voucher.unwrap().status, 201);
        }
    });
    let named = "clock_timestamp() runs on from the recorded time";
    let replayed = inside::replay(&stage, &["--keep-going"]).assert_code(1);
    let said = replayed.stdout;
    assert!(
        said.contains("INSERT INTO voucher") && said.contains(named),
        "{said}"
    );

    // The same code: nothing but what was drawn differs, and that is told apart.
    let finished = retro_in_place(&stage, &["--json"]).assert_code(SUCCESS);
    let same = Report::of(&finished);
    assert_eq!(same.count("responses_changed"), 0, "{:#}", same.0);
    let vouchers = same.table("public.voucher");
    assert_eq!(
        vouchers["rows"].as_array().map(Vec::len),
        Some(0),
        "{vouchers:#}"
    );

    // A change of what is not drawn shows, and nothing else.
    let file = stage.folder().join("stock.py");
    let code = std::fs::read_to_string(&file).unwrap();
    let item = r#"{"item": number}"#;
    assert!(code.contains(item));
    std::fs::write(
        &file,
        code.replace(item, r#"{"item": 2 if number == 3 else number}"#),
    )
    .unwrap();
    let changed = Report::of(&retro_in_place(&stage, &["--json"]).assert_code(SUCCESS));
    assert_eq!(changed.count("responses_changed"), 0, "{:#}", changed.0);
    let vouchers = changed.table("public.voucher");
    let rows = vouchers["rows"].as_array().map_or(0, Vec::len);
    assert!(rows == 3 || rows == 6, "{vouchers:#}");
    let remarks = changed.0["remarks"].to_string();
    assert!(remarks.contains(named), "{remarks}");
}
