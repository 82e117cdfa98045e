//! Programs that people use, as their distribution ships them, doing real work from beginning to
//! end.

use std::path::Path;
use std::process::Command;

use hindcast_tests::exec::outcome::run;
use hindcast_tests::exec::servers::WebServer;
use hindcast_tests::exec::{Outcome, Program, Recorded, Scene, programs};

/// Text that packs to about a third, different in every line.
fn text(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "snapshot", "replay", "order", "lock", "thread", "of", "the", "and", "recorded", "page",
        "clock", "event", "was", "before", "signal", "byte",
    ];
    let mut state = 88_172_645_463_325_252_u64;
    let mut made = Vec::with_capacity(bytes + 100);
    while made.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for shift in 0..6 {
            made.extend_from_slice(WORDS[(state >> (shift * 8)) as usize & 15].as_bytes());
            made.push(b' ');
        }
        made.extend_from_slice(format!("{state:x}\n").as_bytes());
    }
    made.truncate(bytes);
    made
}

/// Standard output has this in it, and the program went well.
#[track_caller]
fn assert_shows(outcome: &Outcome, parts: &[&str]) {
    outcome.assert_code(0);
    for part in parts {
        assert!(
            outcome.text().contains(part),
            "no {part:?} in\n{}\n{}",
            outcome.text(),
            String::from_utf8_lossy(&outcome.stderr)
        );
    }
}

#[test]
fn lua() {
    let scene = Scene::new("lua")
        .file("input.txt", text(200_000))
        .file("script.lua", LUA);
    let recorded = scene.record(
        &Program::new("lua5.4")
            .args(["script.lua", "an argument"])
            .input("first line\nsecond line\n3.5\n"),
    );
    assert_shows(
        &recorded,
        &["read second line", "the shell said", "words: ", "done"],
    );
    scene.assert_replays(&recorded);
}

const LUA: &str = r#"
print("arguments", ..., "at", os.time(), os.date(), os.clock())
print("addresses", {}, print, function() end, io.stdout)
math.randomseed(os.time(), os.clock() * 1e6 // 1)
print("random", math.random(), math.random(1000000))
io.read("l")
print("read " .. io.read("l"), io.read("n"))
local count, words = 0, {}
for line in io.lines("input.txt") do
  count = count + 1
  for word in line:gmatch("%a+") do words[word] = (words[word] or 0) + 1 end
end
local sorted = {}
for word in pairs(words) do sorted[#sorted + 1] = word end
table.sort(sorted, function(a, b) return words[a] > words[b] or words[a] == words[b] and a < b end)
print("lines", count, "words: ", table.concat(sorted, " ", 1, 5))
local name = os.tmpname()
print("temporary", name)
local file = assert(io.open(name, "w"))
for i = 1, 20000 do file:write(i, " ", i * i, "\n") end
file:close()
file = io.open(name)
print("at", file:seek("end"), file:seek("set", 1000), file:read(20))
file:close()
print("renamed", os.rename(name, name .. ".old"), os.remove(name .. ".old"), os.remove(name))
local pipe = io.popen("echo the shell said $$; date +%s%N; wc -l < input.txt")
for line in pipe:lines() do print(line) end
print("closed", pipe:close())
print("executed", os.execute("echo from a child; exit 3"))
print("home", os.getenv("HOME"), os.getenv("NOTHING"), os.setlocale())
local co = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(os.clock()) end end)
print("coroutine", co(), co(), pcall(error, {code = 1}))
local garbage = {}
for i = 1, 200000 do garbage[i % 1000] = {i, tostring(i)} end
print("memory", collectgarbage("count"))
-- The order of pairs depends on addresses.
local keys = {}
for i = 1, 20 do keys[{}] = i end
for key, value in pairs(keys) do io.write(value, " ") end
print("done")
"#;

/// More than ten thousand statements, with everything that is different each time.
fn sql() -> String {
    let mut script = String::from(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, made TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), token BLOB DEFAULT (randomblob(16)));
         CREATE INDEX item_price ON item (price);
         CREATE TABLE sale (item INTEGER REFERENCES item, pieces INTEGER, day TEXT);
         CREATE TRIGGER sold AFTER INSERT ON sale BEGIN UPDATE item SET price = price * 1.01 WHERE id = NEW.item; END;\n",
    );
    for block in 0..100 {
        script.push_str(if block % 7 == 3 {
            "BEGIN IMMEDIATE;\n"
        } else {
            "BEGIN;\n"
        });
        for row in 0..50 {
            let id = block * 50 + row;
            script.push_str(&format!("INSERT INTO item (id, name, price) VALUES ({id}, 'item ' || {id}, abs(random()) % 10000 / 100.0);\n"));
            script.push_str(&format!("INSERT INTO sale SELECT id, 1 + abs(random()) % 9, date('now', '-' || (abs(random()) % 365) || ' days') FROM item WHERE id >= abs(random()) % {} LIMIT {};\n", id + 1, 1 + row % 3));
        }
        script.push_str(if block % 10 == 9 {
            "ROLLBACK;\n"
        } else {
            "COMMIT;\n"
        });
        script
            .push_str("SELECT count(*), round(sum(price), 2), max(made), hex(token) FROM item;\n");
    }
    script.push_str(
        "SELECT day, sum(pieces) FROM sale GROUP BY day ORDER BY 2 DESC, 1 LIMIT 20;
         SELECT id, name, round(price, 2) FROM item ORDER BY price DESC LIMIT 10;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT sum(i), count(DISTINCT i % 97) FROM n;
         SELECT 'no such table follows'; SELECT * FROM no_table;
         PRAGMA integrity_check; VACUUM; SELECT datetime('now'), julianday('now') > 2460000, sqlite_version();\n",
    );
    script
}

#[test]
fn sqlite3() {
    let scene = Scene::new("sqlite3");
    let program = Program::new("sqlite3").args(["shop.db"]).input(sql());
    let recorded = scene.record(&program);
    // The statement that fails makes the shell end with 1.
    recorded.assert_code(1);
    assert!(recorded.text().contains("\nok\n"), "{}", recorded.text());
    assert!(String::from_utf8_lossy(&recorded.stderr).contains("no such table: no_table"));
    scene.assert_replays(&recorded);
}

/// A database that is there before: 6 MB.
fn made_before() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("library.db");
    run(Command::new("sqlite3").arg(&file).arg(
        "CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, year INTEGER, text BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000) INSERT INTO book SELECT i, 'title ' || i, 1900 + i % 120, zeroblob(900) FROM n;",
    ));
    std::fs::read(file).expect("sqlite3 made it")
}

/// At the interface of SQLite the pages that it reads are not in the log, only what it answers.
#[test]
fn sqlite3_at_its_own_interface() {
    let library = made_before();
    let questions = "PRAGMA cache_size = 20;
         SELECT year, count(*), sum(length(text)) FROM book GROUP BY year ORDER BY year LIMIT 5;
         SELECT count(*), random(), datetime('now') FROM book WHERE title LIKE '%7%' AND length(text) = 900;
         BEGIN; UPDATE book SET year = year + 1 WHERE id % 10 = abs(random()) % 10; COMMIT;
         SELECT sum(year), hex(randomblob(4)) FROM book; SELECT * FROM no_table;\n";
    let recorded = |options: &[&str]| {
        let scene = Scene::new("sqlite3-interface").file("library.db", library.clone());
        let program = Program::new("sqlite3")
            .args(["library.db"])
            .input(questions)
            .options(options.to_vec());
        let recorded = scene.record(&program);
        recorded.assert_code(1);
        assert!(
            recorded.text().starts_with("1900|50|45000\n"),
            "{}",
            recorded.text()
        );
        scene.assert_replays(&recorded);
        Recorded::in_folder(scene.recording()).bytes()
    };
    let (libc, sqlite) = (recorded(&[]), recorded(&["--interface", "sqlite3"]));
    assert!(
        sqlite * 10 < libc,
        "{sqlite} bytes at the interface of SQLite, {libc} at that of libc"
    );
}

#[test]
fn curl() {
    let server = WebServer::start();
    let scene = Scene::new("curl").file("body.json", "{\"a\": 1}");
    let program = Program::new("curl").args([
        "-sS",
        "-v",
        "-i",
        "-L",
        "-c",
        "cookies",
        "--retry",
        "1",
        "-w",
        "%{time_total} %{local_port} %{http_code}\\n",
        "-d",
        "@body.json",
        "-o",
        "large.txt",
        &server.url("large"),
        &server.url("small"),
        &server.url("moved"),
        &server.url("nothing"),
    ]);
    let recorded = scene.record(&program);
    assert_shows(
        &recorded,
        &["HTTP/1.1 200 OK", "nanoseconds", "nothing at /nothing"],
    );
    assert!(server.asked() >= 4);
    drop(server);
    scene.assert_replays(&recorded);
}

#[test]
fn wget() {
    let server = WebServer::start();
    let scene = Scene::new("wget");
    let program = Program::new("wget").args([
        "-S",
        "-O",
        "-",
        "--progress=dot",
        &server.url("small"),
        &server.url("moved"),
        &server.url("large"),
    ]);
    let recorded = scene.record(&program);
    assert_shows(&recorded, &["nanoseconds", "line 19999 of a long answer"]);
    assert!(server.asked() >= 4);
    drop(server);
    scene.assert_replays(&recorded);
}

/// What a packer with several threads writes is packed rightly, and replayed without its input.
fn packs(command: &[&str], unpack: &str) {
    let data = text(24 << 20);
    let scene = Scene::new(command[0]).file("data", data.clone());
    let recorded = scene.record(&Program::new(command[0]).args(&command[1..]));
    recorded.assert_code(0);
    let packed = scene.folder().join("packed");
    std::fs::write(&packed, &recorded.stdout).expect("the scene's folder is ours");
    let unpacked = Command::new(unpack)
        .args(["-d", "-c"])
        .arg(&packed)
        .output()
        .expect("it is installed");
    assert!(
        unpacked.stdout == data,
        "{} bytes come back",
        unpacked.stdout.len()
    );
    let events = Recorded::in_folder(scene.recording()).events();
    assert!(events.len() >= 3, "two threads and the first: {events:?}");
    scene.assert_replays(&recorded);
}

#[test]
fn pigz() {
    packs(&["pigz", "-p", "2", "-c", "data"], "pigz");
}

#[test]
fn pigz_from_a_pipe() {
    let data = text(6 << 20);
    let scene = Scene::new("pigz-pipe");
    let recorded = scene.record(
        &Program::new("pigz")
            .args(["-p", "4", "-1", "-v"])
            .input(data),
    );
    recorded.assert_code(0);
    scene.assert_replays(&recorded);
}

#[test]
fn xz() {
    packs(
        &[
            "xz",
            "-T",
            "2",
            "-1",
            "--block-size=2MiB",
            "-c",
            "-v",
            "data",
        ],
        "xz",
    );
}

/// The distribution's own, where there is one: others may be a script that looks for the real one.
fn python() -> Program {
    let own = Path::new("/usr/bin/python3");
    Program::new(if own.exists() {
        own
    } else {
        Path::new("python3")
    })
}

/// Its collector takes what lies on the stack for addresses, so it asks for the time when it asked
/// for it only if calls leave the same there.
#[test]
fn ruby_with_its_collector() {
    let scene = Scene::new("ruby").file("script.rb", RUBY);
    let recorded = scene.record(&Program::new("ruby").args(["script.rb"]));
    assert_shows(&recorded, &["bytes of JSON", "words", "collected"]);
    scene.assert_replays(&recorded);
}

const RUBY: &str = r##"
require "json"
require "set"
rows = (1..5000).map { |i| { "k#{i}" => [i, i.to_s * 3] } }
puts "#{JSON.generate(rows).size} bytes of JSON"
seen = Set.new
20_000.times { |i| seen << (i * 7919) % 10_007 }
words = Hash.new(0)
50_000.times { |i| words["x#{i % 1000}"] += 1 }
GC.start
puts "#{seen.size + words.size} words", `echo a child`, File.read("/etc/passwd").lines.first
puts "collected #{GC.count} times by #{Time.now.to_f}"
"##;

/// The lock of the interpreter changes hands only where a call is made.
#[test]
fn python_with_busy_threads() {
    let scene = Scene::new("python-busy").file("busy.py", PYTHON_BUSY);
    let recorded = scene.record(&python().args(["busy.py"]));
    assert_shows(&recorded, &["four threads: "]);
    scene.assert_replays(&recorded);
}

const PYTHON_BUSY: &str = r#"
import concurrent.futures, hashlib, queue, random, threading, time
seen = []
def compute(n):
    total = 0
    for i in range(300000):
        total += i * n % 7
        if i % 30000 == 0:
            seen.append((n, i))
            time.monotonic()
    seen.append((n, total))
threads = [threading.Thread(target=compute, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print("four threads:", seen)
def digest(n):
    time.sleep(random.random() / 1000)
    return hashlib.sha256(str(n).encode() * 1000).hexdigest(), threading.current_thread().name
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(list(pool.map(digest, range(100))))
jobs, done = queue.Queue(10), []
def consume():
    while (job := jobs.get()) is not None:
        done.append((job, threading.get_ident(), sum(i * job for i in range(2000))))
threads = [threading.Thread(target=consume) for _ in range(3)]
for t in threads: t.start()
for i in range(200): jobs.put(i)
for t in threads: jobs.put(None)
for t in threads: t.join()
print(done)
"#;

/// One that goes round until another has set a variable makes no call at all: it is given five
/// seconds, and the recording says so.
#[test]
fn python_threads_that_wait_for_a_variable_go_on() {
    let scene = Scene::new("python-spins").file("spins.py", PYTHON_SPINS);
    let recorded = scene.record(&python().args(["spins.py"]));
    assert_shows(&recorded, &["set 3"]);
    recorded.assert_said(&[
        "a replay is not exact from",
        "a thread of Python has waited for 5 s",
    ]);
}

const PYTHON_SPINS: &str = r#"
import threading
flag = 0
def turn(n):
    global flag
    while flag != n: pass
    flag = n + 1
threads = [threading.Thread(target=turn, args=(n,)) for n in (2, 1, 0)]
for t in threads: t.start()
for t in threads: t.join()
print("set", flag)
"#;

#[test]
fn python_with_one_thread() {
    let server = WebServer::start();
    let scene = Scene::new("python")
        .file("script.py", PYTHON)
        .file("data.txt", text(300_000));
    let recorded = scene.record(
        &python()
            .args(["script.py", &server.url("large")])
            .input("some input\n"),
    );
    assert_shows(
        &recorded,
        &["sqlite 5000", "urllib 200", "child said 4", "done"],
    );
    drop(server);
    scene.assert_replays(&recorded);
}

const PYTHON: &str = r#"
import sys, os, json, hashlib, sqlite3, urllib.request, tempfile, random, time, subprocess, uuid, datetime, socket, struct, zlib, secrets, glob, shutil, collections, re, select, platform, locale, logging

print("python", sys.version_info[:2], os.getpid(), time.time(), time.monotonic(), time.process_time(), datetime.datetime.now())
print("random", random.random(), random.getrandbits(64), uuid.uuid4(), uuid.uuid1(), secrets.token_hex(8), os.urandom(8).hex())
print("hash of a string", hash("abc"), "address", id(object()), object())
print("set order", {"one", "two", "three", "four", "five"})
print("input", sys.stdin.readline().strip())
text = open("data.txt").read()
print("sha", hashlib.sha256(text.encode()).hexdigest(), zlib.crc32(text.encode()))
words = collections.Counter(re.findall(r"[a-z]+", text))
print("words", words.most_common(3))
document = {"words": words, "now": time.time_ns(), "nested": [{"i": i, "r": random.gauss(0, 1)} for i in range(2000)]}
assert json.loads(json.dumps(document)) == document
print("json", hashlib.md5(json.dumps(document).encode()).hexdigest())
with tempfile.TemporaryDirectory() as folder:
    print("temporary", folder)
    for i in range(100):
        with open(os.path.join(folder, f"file{i}"), "wb") as file:
            file.write(secrets.token_bytes(1000))
    print("files", sorted(os.listdir(folder))[:3], os.listdir(folder)[:3], sum(os.path.getsize(p) for p in glob.glob(folder + "/*")))
    shutil.copy(folder + "/file1", folder + "/copy")
    print("mtime", os.stat(folder + "/copy").st_mtime_ns, os.stat(folder + "/copy").st_ino)
    database = sqlite3.connect(os.path.join(folder, "db"))
    database.execute("create table t (id integer primary key, r integer, at text default current_timestamp)")
    with database:
        database.executemany("insert into t (r) values (?)", ((random.randrange(1000000),) for _ in range(5000)))
    print("sqlite", *database.execute("select count(*), sum(r), max(at) from t").fetchone(), database.execute("select random()").fetchone())
    database.close()
with urllib.request.urlopen(sys.argv[1]) as answer:
    body = answer.read()
    print("urllib", answer.status, len(body), hashlib.sha1(body).hexdigest(), answer.headers["Set-Cookie"])
try:
    urllib.request.urlopen(sys.argv[1].replace("large", "missing"))
except urllib.error.HTTPError as error:
    print("urllib", error.code, error.read())
done = subprocess.run(["sh", "-c", "echo child $$; date +%N; cat; exit 4"], input="to the child\n", capture_output=True, text=True)
print("child said", done.returncode, done.stdout, done.stderr)
left, right = socket.socketpair()
left.sendall(struct.pack("!dI", time.time(), 7))
print("socketpair", struct.unpack("!dI", right.recv(100)), select.select([left], [right], [], 0)[1] == [right])
print("host", socket.gethostname(), socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)[0][4], platform.platform(), os.cpu_count(), os.getloadavg())
time.sleep(0.01)
logging.basicConfig(format="%(asctime)s %(process)d %(message)s")
logging.warning("to standard error")
print("done", time.perf_counter_ns())
"#;

/// A database client with prepared statements and functions of its own, at both interfaces.
#[test]
fn a_program_of_ones_own_with_sqlite() {
    let program = programs::compiled_with(
        "cc",
        &hindcast_tests::repository("tests/programs/database/main.c"),
        "database",
        &["-lsqlite3"],
    );
    for options in [&[][..], &["--interface", "sqlite3"]] {
        let scene = Scene::new("database");
        let recorded = scene.assert_records_and_replays(
            &Program::new(&program)
                .args(["shop.db"])
                .options(options.iter().copied()),
        );
        recorded.assert_code(0);
    }
}

/// What is on every machine: a wide sweep over what programs ask the system for.
#[test]
fn everyday_tools() {
    let tools: &[&[&str]] = &[
        &["date", "+%s.%N"],
        &["ls", "-laR", "/etc/apt", "/usr/bin"],
        &["id"],
        &["df", "-a"],
        &["uname", "-a"],
        &["uptime"],
        &[
            "find",
            "/usr/share/doc",
            "-maxdepth",
            "1",
            "-newermt",
            "2020-01-01",
            "-printf",
            "%p %T@ %i\\n",
        ],
        &["sort", "-R", "input.txt"],
        &["sort", "--parallel=2", "-S", "1M", "input.txt"],
        &["shuf", "input.txt"],
        &["stat", "input.txt", "/proc", "/dev/null"],
        &["du", "-s", "/usr/share/doc"],
        &["cat", "/proc/self/stat", "/proc/uptime", "input.txt"],
        &["env"],
        &["mktemp", "-u"],
        &["tar", "-cvf", "-", "input.txt"],
        &["gzip", "-c", "input.txt"],
        &["sha256sum", "input.txt"],
        &["openssl", "rand", "-hex", "16"],
        &[
            "awk",
            "BEGIN { srand(); print rand(), systime() } /lock/ { n++ } END { print n, ENVIRON[\"PATH\"] }",
            "input.txt",
        ],
        &[
            "perl",
            "-e",
            "print time, ' ', rand, ' ', $$, ' ', \\1, qq{\\n}; my %h = map { $_ => 1 } 1..50; print join(' ', keys %h), qq{\\n}; print `date +%N`",
        ],
        &["sed", "-n", "s/lock/LOCK/gp", "input.txt"],
        &["dd", "if=/dev/urandom", "bs=1000", "count=50"],
        &[
            "bash",
            "-c",
            "echo $RANDOM $$ $SECONDS $EPOCHREALTIME; for i in 1 2 3; do (echo child $i $BASHPID); done; cat <(date +%N) | tr 0-9 a-j; wait; exit 7",
        ],
        &[
            "sh",
            "-c",
            "date +%N | wc -c; echo $$ $PPID; ls /proc/self/fd; sleep 0.01 & wait $!; echo $?; kill -TERM $$",
        ],
        &["ps", "-ef"],
    ];
    let mut failures = String::new();
    for tool in tools {
        let name = tool.join(" ");
        let verdict = std::panic::catch_unwind(|| {
            let scene = Scene::new(tool[0]).file("input.txt", text(100_000));
            let recorded = scene.record(&Program::new(tool[0]).args(&tool[1..]));
            assert!(
                !recorded.stdout.is_empty() && recorded.code() < 124 || recorded.code() == 143,
                "{recorded:?}"
            );
            scene.assert_replays(&recorded);
        });
        if let Err(panic) = verdict {
            let text = panic
                .downcast_ref::<String>()
                .map_or("panicked", String::as_str);
            failures.push_str(&format!("== {name}\n{text}\n"));
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn the_packed_text_is_what_the_tools_expect() {
    // The data above must be worth packing, or the packers' threads have nothing to do.
    let scene = Scene::new("packed").file("data", text(1 << 20));
    std::fs::create_dir_all(scene.work()).expect("the scene's folder is ours");
    let data = scene.folder().join("data");
    std::fs::write(&data, text(1 << 20)).expect("the scene's folder is ours");
    let size: usize = run(Command::new("sh")
        .arg("-c")
        .arg(format!("gzip -c '{}' | wc -c", data.display())))
    .trim()
    .parse()
    .expect("a number");
    assert!((1 << 17..1 << 19).contains(&size), "{size}");
}
