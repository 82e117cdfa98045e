use std::collections::BTreeSet;
use std::process::Command;

use hindcast_cluster::{Binaries, Cluster, Options};
use hindcast_pg::Lsn;
use proptest::prelude::*;

use super::*;

/// What is compared with `pg_waldump`: where, who, of which manager, which relations, and how a
/// transaction ended.
type Line = (u64, u32, String, BTreeSet<String>, Option<Ended>);

/// Whether it committed, the id that was prepared, subtransactions, dropped files.
type Ended = (bool, Option<u32>, Vec<u32>, Vec<String>);

const MANAGERS: [&str; 22] = [
    "XLOG",
    "Transaction",
    "Storage",
    "CLOG",
    "Database",
    "Tablespace",
    "MultiXact",
    "RelMap",
    "Standby",
    "Heap2",
    "Heap",
    "Btree",
    "Hash",
    "Gin",
    "Gist",
    "Sequence",
    "SPGist",
    "BRIN",
    "CommitTs",
    "ReplicationOrigin",
    "Generic",
    "LogicalMessage",
];

/// A server that has done a bit of everything, and its WAL from a segment's beginning.
struct Wal {
    cluster: Cluster,
    format: Format,
    start: Lsn,
    end: Lsn,
    bytes: Vec<u8>,
}

impl Wal {
    fn of(settings: &[(&str, &str)], work: &[&str]) -> Self {
        let options = Options::throw_away()
            .set("synchronous_commit", "on")
            .set("full_page_writes", "on")
            .set("max_prepared_transactions", "5")
            .set("wal_keep_size", "512MB");
        let set = |options: Options, (name, value): &(&str, &str)| options.set(name, value);
        let cluster = Cluster::temporary(settings.iter().fold(options, set)).unwrap();
        // The segments that initdb wrote are full of records of its own.
        let ask = |sql: &str| cluster.sql("postgres", sql).unwrap();
        let segment: u64 = ask("SELECT setting FROM pg_settings WHERE name = 'wal_segment_size'")
            .parse()
            .unwrap();
        ask("SELECT pg_switch_wal()");
        ask("CHECKPOINT");
        let position = || -> u64 {
            let at: Lsn = ask("SELECT pg_current_wal_flush_lsn()").parse().unwrap();
            at.0
        };
        let start = position() / segment;
        work.iter().for_each(|sql| drop(ask(sql)));
        ask("CHECKPOINT");
        let end = position();
        let mut bytes = Vec::new();
        for number in start..=end / segment {
            let name = format!("{:08X}{:08X}{:08X}", 1, number >> 8, number & 0xFF);
            let path = cluster.data_folder().join("pg_wal").join(name);
            bytes.extend(std::fs::read(path).unwrap());
        }
        bytes.truncate((end - start * segment) as usize);
        let version = Binaries::find().unwrap().major();
        Self {
            cluster,
            format: Format::new(version, 8192, segment).unwrap(),
            start: Lsn(start * segment),
            end: Lsn(end),
            bytes,
        }
    }

    fn decode(&self, chunk: usize) -> Vec<Line> {
        let mut decoder = Decoder::new(self.format, self.start);
        let mut lines = Vec::new();
        for bytes in self.bytes.chunks(chunk) {
            let each = &mut |record: &record::Record<'_>| lines.push(line(self.format, record));
            decoder.feed(bytes, each).unwrap();
        }
        assert_eq!(decoder.position(), self.end);
        lines
    }

    fn facts(&self, database: &str) -> Facts {
        let oid = format!("SELECT oid FROM pg_database WHERE datname = '{database}'");
        let oid = self.cluster.sql("postgres", &oid).unwrap().parse().unwrap();
        let mut facts = Facts::new(self.format, oid, 1000);
        let mut decoder = Decoder::new(self.format, self.start);
        let each = &mut |record: &record::Record<'_>| facts.note(record);
        decoder.feed(&self.bytes, each).unwrap();
        facts
    }

    fn waldump(&self) -> Vec<Line> {
        let program = Binaries::find().unwrap().program("pg_waldump");
        let output = Command::new(program)
            .arg("--path")
            .arg(self.cluster.data_folder().join("pg_wal"))
            .args(["--start", &self.start.to_string()])
            .args(["--end", &self.end.to_string()])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter_map(dumped).collect()
    }
}

fn line(format: Format, record: &record::Record<'_>) -> Line {
    let relations = record.relations.iter();
    let relations =
        relations.map(|one| format!("{}/{}/{}", one.tablespace, one.database, one.node));
    let manager = MANAGERS[usize::from(record.manager)].to_owned();
    let ended = ended(format, record);
    (
        record.lsn.0,
        record.xid,
        manager,
        relations.collect(),
        ended,
    )
}

fn ended(format: Format, record: &record::Record<'_>) -> Option<Ended> {
    let committed = record.ends_transaction()?;
    let end = Ending::read(format, record).expect("the lists are whole");
    let path = |file: &Relfile| format!("{}/{}", file.database, file.node);
    let dropped = end.dropped.iter().map(path).collect();
    let prepared = (end.top != record.xid).then_some(end.top);
    Some((committed, prepared, end.subtransactions, dropped))
}

/// `rmgr: Heap len (rec/tot): 59/59, tx: 740, lsn: 0/0155A6A8, prev …, desc: …, blkref #0: rel
/// 1663/5/16384 blk 0`
fn dumped(line: &str) -> Option<Line> {
    let after = |word: &str| {
        let rest = line.split_once(word)?.1.trim_start();
        rest.split([' ', ',']).next()
    };
    let lsn: Lsn = after("lsn:")?.parse().ok()?;
    let blocks = line.split("blkref #").skip(1);
    let blocks =
        blocks.filter(|block| !block.contains(" fork fsm ") && !block.contains(" fork vm "));
    let relations = blocks.filter_map(|block| {
        let rest = block.split_once("rel ")?.1;
        Some(rest.split(' ').next()?.to_owned())
    });
    Some((
        lsn.0,
        after("tx:")?.parse().ok()?,
        after("rmgr:")?.to_owned(),
        relations.collect(),
        dumped_end(line.split_once("desc: ")?.1),
    ))
}

/// `COMMIT_PREPARED 740: 2024-01-01 …; rels: base/5/16384; subxacts: 741 742; inval msgs: …`
fn dumped_end(description: &str) -> Option<Ended> {
    let (kind, rest) = description.split_once(' ')?;
    let (committed, was_prepared) = match kind {
        "COMMIT" => (true, false),
        "COMMIT_PREPARED" => (true, true),
        "ABORT" => (false, false),
        "ABORT_PREPARED" => (false, true),
        _ => return None,
    };
    let words = |title: &str| {
        let list = rest.split_once(title).map_or("", |(_, list)| list);
        let list = list.split(';').next().unwrap_or("").split_whitespace();
        list.map(str::to_owned).collect::<Vec<_>>()
    };
    let prepared = rest.split(':').next().and_then(|id| id.parse().ok());
    let rels = words("; rels: ");
    let file = |path: &String| path.split_once('/').map(|(_, file)| file.to_owned());
    Some((
        committed,
        prepared.filter(|_| was_prepared),
        words("; subxacts: ")
            .iter()
            .map(|id| id.parse().unwrap())
            .collect(),
        rels.iter().filter_map(file).collect(),
    ))
}

const WORK: [&str; 22] = [
    "CREATE TABLE t (id serial PRIMARY KEY, x text); CREATE TABLE o (id int)",
    "INSERT INTO t (x) SELECT repeat(md5(i::text), i % 40) FROM generate_series(1, 3000) i",
    "CHECKPOINT",
    "UPDATE t SET x = x || 'y' WHERE id % 3 = 0",
    "DELETE FROM t WHERE id % 7 = 0",
    "BEGIN; SAVEPOINT a; INSERT INTO o VALUES (1); SAVEPOINT b; INSERT INTO t (x) VALUES ('b'); ROLLBACK TO b; SAVEPOINT c; DELETE FROM o; COMMIT",
    "BEGIN; SAVEPOINT a; INSERT INTO o VALUES (2); RELEASE a; CREATE TABLE p (); PREPARE TRANSACTION 'p'",
    "COMMIT PREPARED 'p'",
    "BEGIN; DROP TABLE p; PREPARE TRANSACTION 'q'; ROLLBACK PREPARED 'q'",
    "BEGIN; INSERT INTO o VALUES (3); CREATE TABLE q (id serial); ROLLBACK",
    "SELECT pg_switch_wal()",
    "CREATE DATABASE other",
    "COPY o FROM PROGRAM 'seq 1 500'",
    "SELECT lo_from_bytea(0, repeat('x', 100000)::bytea)",
    "CREATE INDEX ON t USING gin (to_tsvector('simple', x)); CREATE INDEX ON t USING hash (x); CREATE INDEX ON t USING spgist (x); CREATE INDEX ON t USING brin (id); CREATE INDEX ON o USING gist (box(point(id, id), point(id, id)))",
    "INSERT INTO t (x) SELECT i FROM generate_series(1, 200) i; UPDATE o SET id = id + 1",
    "SELECT * FROM o WHERE id < 9 FOR KEY SHARE; ALTER TABLE o ADD y text DEFAULT random(); VACUUM FULL o",
    "VACUUM (FREEZE, ANALYZE) t",
    "CREATE INDEX CONCURRENTLY ON t (x text_pattern_ops) WHERE length(x) < 500",
    "SELECT pg_logical_emit_message(false, 'large', repeat('x', 100000))",
    "BEGIN; CREATE TEMP TABLE own (x int) ON COMMIT DROP; INSERT INTO own VALUES (1); COMMIT",
    "TRUNCATE o; DROP TABLE o; DROP DATABASE other",
];

/// Updates that write whole pages, with each way to compress them that the server knows.
const WORK_ON_PAGES: &str = "SELECT format('CHECKPOINT; SET wal_compression = %I; UPDATE t SET x = x || id', way) \
    FROM pg_settings, unnest(coalesce(enumvals, '{on}')) way WHERE name = 'wal_compression' AND way <> 'off' \\gexec";

const PLAIN: [(&str, &str); 1] = [("wal_compression", "off")];
const WORDY: [(&str, &str); 4] = [
    ("wal_level", "logical"),
    ("wal_log_hints", "on"),
    ("track_commit_timestamp", "on"),
    ("wal_compression", "on"),
];

#[test]
fn records_are_read_as_pg_waldump_reads_them() {
    let mut work = WORK.to_vec();
    work.insert(4, WORK_ON_PAGES);
    for settings in [&PLAIN[..], &WORDY] {
        let wal = Wal::of(settings, &work);
        let read = wal.decode(usize::MAX);
        let dumped = wal.waldump();
        assert!(dumped.len() > 3000, "{} records", dumped.len());
        for (ours, theirs) in read.iter().zip(&dumped) {
            assert_eq!(ours, theirs, "at {}", Lsn(theirs.0));
        }
        // The last record may end where the reference stops to look.
        assert!(
            read.len() - dumped.len() <= 1,
            "{} {}",
            read.len(),
            dumped.len()
        );
        for chunk in [1000, 8191, 131_072] {
            assert_eq!(wal.decode(chunk), read, "in pieces of {chunk} bytes");
        }
    }
}

/// `13 image 9101…`: the version, what it is, and bytes that such a server wrote. An image is the
/// beginning of an insertion into `pg_type`, with a compressed page; an end is that of a prepared
/// transaction that dropped a table. They are what differs between versions.
const CAPTURED: &str = include_str!("captured.txt");

#[test]
fn layouts_of_other_versions_are_read() {
    for captured in CAPTURED.lines() {
        let (major, rest) = captured.split_once(' ').unwrap();
        let (kind, digits) = rest.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let format = Format::new(major.parse().unwrap(), 8192, 16 << 20).unwrap();
        let mut found = Vec::new();
        let record = record::relations(format, &bytes, kind == "end", &mut found).unwrap();
        if kind == "image" {
            assert_eq!(record.relations[0].node, 1247, "{captured}");
            continue;
        }
        let end = Ending::read(format, &record).unwrap();
        assert_eq!(end.dropped[0].node, 16384, "{captured}");
        let last = u32::from_le_bytes(*bytes.last_chunk().unwrap());
        assert_eq!(end.top, last, "{captured}");
    }
}

/// The id of a transaction that runs `sql`, and where a table's files are.
fn transaction(cluster: &Cluster, database: &str, sql: &str) -> u64 {
    let script = format!("BEGIN; {sql}; SELECT 'id ' || pg_current_xact_id(); COMMIT");
    let output = cluster.sql(database, &script).unwrap();
    let id = output.lines().find_map(|line| line.strip_prefix("id "));
    id.unwrap().parse().unwrap()
}

#[test]
fn facts_say_who_wrote_where() {
    let wal = Wal::of(
        &[],
        &[
            "CREATE TABLE a (x int); CREATE TABLE b (x int)",
            "CREATE DATABASE other",
        ],
    );
    let cluster = &wal.cluster;
    let node = |table: &str| -> u32 {
        let sql = format!("SELECT pg_relation_filenode('{table}')");
        cluster.sql("postgres", &sql).unwrap().parse().unwrap()
    };
    let run = |database: &str, sql: &str| transaction(cluster, database, sql);
    cluster.sql("other", "CREATE TABLE a (x int)").unwrap();
    let rows = run("postgres", "INSERT INTO a VALUES (1)");
    let deep = run(
        "postgres",
        "SAVEPOINT s; INSERT INTO b VALUES (1); SAVEPOINT t; INSERT INTO a VALUES (2)",
    );
    let undone = run(
        "postgres",
        "INSERT INTO a VALUES (3); SAVEPOINT s; INSERT INTO b VALUES (2); ROLLBACK TO s",
    );
    let other = run("other", "INSERT INTO a VALUES (4)");
    let locked = run("postgres", "LOCK TABLE a");
    let locked_elsewhere = run("other", "LOCK TABLE a");
    let row_lock = run("postgres", "SELECT * FROM a LIMIT 1 FOR UPDATE");
    let temporary = run(
        "postgres",
        "CREATE TEMP TABLE own (x int); INSERT INTO own VALUES (1)",
    );
    let truncated = run("postgres", "TRUNCATE b");
    cluster.sql("postgres", "ANALYZE a").unwrap();
    let analyzed: u64 = cluster
        .sql(
            "postgres",
            "SELECT max(xmin::text::int8) FROM pg_statistic WHERE starelid = 'a'::regclass",
        )
        .unwrap()
        .parse()
        .unwrap();
    let (a, b) = (node("a"), node("b"));
    let long = "CREATE TABLE long (x text); ALTER TABLE long ALTER x SET STORAGE EXTERNAL; \
                INSERT INTO long VALUES (repeat('x', 9000))";
    cluster.sql("postgres", long).unwrap();
    // Which writes it anew.
    let rewritten = run("postgres", "ALTER TABLE long ADD y float DEFAULT random()");
    let next = || -> u64 {
        let snapshot = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
        cluster.sql("postgres", snapshot).unwrap().parse().unwrap()
    };
    cluster.sql("postgres", "DELETE FROM long").unwrap();
    let vacuumed = next();
    cluster.sql("postgres", "VACUUM long").unwrap();

    let end: Lsn = cluster
        .sql("postgres", "SELECT pg_current_wal_flush_lsn()")
        .unwrap()
        .parse()
        .unwrap();
    let name = format!(
        "{:08X}{:08X}{:08X}",
        1,
        0,
        wal.start.0 / wal.format.segment_bytes
    );
    let mut bytes = std::fs::read(cluster.data_folder().join("pg_wal").join(name)).unwrap();
    bytes.truncate((end.0 - wal.start.0) as usize);
    let facts = Wal { bytes, end, ..wal }.facts("postgres");

    let rows_of = |xid: u64| -> Vec<u32> {
        let top = facts.commit(xid).expect("it committed").top;
        assert_eq!(top, xid);
        facts
            .effects(top)
            .rows
            .iter()
            .map(|file| file.node)
            .collect()
    };
    assert_eq!(rows_of(rows), [a]);
    assert_eq!(rows_of(deep).len(), 2, "with its subtransactions");
    assert_eq!(facts.commit(deep + 1).map(|commit| commit.top), Some(deep));
    assert_eq!(rows_of(undone), [a], "without what was rolled back");
    assert_eq!(facts.commit(undone + 1), None);
    assert!(rows_of(other).is_empty() && facts.effects(other).elsewhere);
    let mut lock = facts::Effects::default();
    assert_eq!(facts.effects(row_lock), lock, "locks are no writing");
    lock.locked = true;
    assert_eq!(facts.effects(locked), lock);
    assert!(facts.effects(locked_elsewhere).elsewhere);
    assert!(
        rows_of(rewritten).iter().all(|node| *node < 16384)
            && facts.effects(rewritten).dropped.len() > 1,
        "long values in new files are no rows"
    );
    let effects = facts.effects(vacuumed);
    assert!(effects.maintained && effects.rows.is_empty() && effects.locked);
    assert!(
        rows_of(temporary).iter().all(|node| *node < 16384),
        "catalogs only"
    );
    let effects = facts.effects(truncated);
    assert!(
        effects.built.iter().any(|file| file.node == b),
        "its new files"
    );
    assert_eq!(effects.dropped.len(), 1, "its old files");
    assert_eq!(rows_of(analyzed).len(), 1, "statistics only");
}

#[test]
fn torn_and_altered_wal_is_refused_and_never_panics() {
    let wal = Wal::of(&[], &WORK[..8]);
    let whole = wal.decode(usize::MAX).len();
    let read = |bytes: &[u8]| {
        let mut count = 0;
        let mut decoder = Decoder::new(wal.format, wal.start);
        let mut facts = Facts::new(wal.format, 5, 1000);
        let fed = decoder.feed(bytes, &mut |record| {
            facts.note(record);
            count += 1;
        });
        (fed, count)
    };
    // Cut anywhere: what came before is read.
    for cut in (0..wal.bytes.len()).step_by(9973) {
        let (fed, count) = read(&wal.bytes[..cut]);
        assert!(fed.is_ok() && count <= whole, "cut at {cut}");
    }
    // A page that is missing or comes twice is noticed.
    let without = [&wal.bytes[..3 * 8192], &wal.bytes[4 * 8192..]].concat();
    assert!(read(&without).0.is_err());
    let twice = [&wal.bytes[..4 * 8192], &wal.bytes[3 * 8192..]].concat();
    assert!(read(&twice).0.is_err());
    // Other bytes here and there are noticed, but for those that nothing reads: between records,
    // and of one that began before.
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut refused = 0;
    for _ in 0..300 {
        let mut bytes = wal.bytes[..20 * 8192].to_vec();
        for _ in 0..20 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = random as usize % bytes.len();
            bytes[at] = (random >> 32) as u8;
        }
        refused += u32::from(read(&bytes).0.is_err());
    }
    assert!(refused >= 295, "{refused} of 300 refused");
}

fn any_format() -> impl Strategy<Value = Format> {
    (13u32..=18).prop_map(|major| Format::new(major, 8192, 1 << 20).unwrap())
}

proptest! {
    #[test]
    fn garbage_is_refused(format in any_format(), bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        let mut decoder = Decoder::new(format, Lsn(0x100_0000));
        let _ = decoder.feed(&bytes, &mut |_| {});
    }

    #[test]
    fn garbage_behind_a_good_header_is_refused(
        format in any_format(),
        lengths in prop::collection::vec(0u32..200, 1..100),
        managers in prop::collection::vec(any::<(u8, u8)>(), 100),
        bytes in prop::collection::vec(any::<u8>(), 8192),
    ) {
        let mut page = Vec::new();
        page.extend(format.magic().to_le_bytes());
        page.extend([0; 6]);
        page.extend(0x10_0000u64.to_le_bytes());
        page.extend([0; 8]);
        let mut previous = 0u64;
        for (length, (manager, info)) in lengths.iter().zip(managers) {
            while page.len() % 8 != 0 {
                page.push(0);
            }
            let at = page.len();
            page.extend((length + 24).to_le_bytes());
            page.extend(7u32.to_le_bytes());
            page.extend(previous.to_le_bytes());
            page.extend([info, manager % 24, 0, 0]);
            let rest = &bytes[at % 4000..at % 4000 + *length as usize];
            // Or it would be refused before anything else is looked at.
            let checksum = crc32c::crc32c_append(crc32c::crc32c(rest), &page[at..]);
            page.extend(checksum.to_le_bytes());
            page.extend(rest);
            previous = 0x10_0000 + at as u64;
        }
        page.truncate(8192);
        let mut facts = Facts::new(format, 5, 1000);
        let mut decoder = Decoder::new(format, Lsn(0x10_0000));
        let _ = decoder.feed(&page, &mut |record| facts.note(record));
        for at in 0..200 {
            facts.effects(at);
        }
    }
}
