"""Odd and ordinary messages, byte by byte: what comes back must be the same bytes.

A case sends messages of the frontend/backend protocol (version 3.0, chapter 55 of Postgres'
manual) and keeps each message that comes back. Process ids and cancel keys are masked; nothing
else differs between two fresh servers.
"""

import hashlib
import re
import socket
import struct
from functools import partial

from compare import FAILED, PASSED, Outcome

PATIENCE_S = 15
SSL_REQUEST, GSSENC_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
VERSION_3 = 3 << 16


def packet(code, body=b""):
    """A packet of the startup phase, which has no type byte."""
    return struct.pack("!II", len(body) + 8, code) + body


def startup(version=VERSION_3, **parameters):
    pairs = [text(part) for pair in parameters.items() for part in pair]
    return packet(version, b"".join(pairs) + b"\0")


def text(value):
    return str(value).encode() + b"\0"


def message(kind, body=b""):
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def query(sql):
    return message("Q", text(sql))


def parse(sql, name="", types=()):
    return message("P", text(name) + text(sql) + struct.pack(f"!H{len(types)}I", len(types), *types))


def bind(*values, statement="", portal="", results=()):
    body = text(portal) + text(statement) + struct.pack("!HH", 0, len(values))
    for value in values:
        encoded = None if value is None else str(value).encode()
        body += struct.pack("!i", -1) if encoded is None else struct.pack("!I", len(encoded)) + encoded
    return message("B", body + struct.pack(f"!H{len(results)}H", len(results), *results))


def describe(kind, name=""):
    return message("D", kind.encode() + text(name))


def execute(portal="", rows_max=0):
    return message("E", text(portal) + struct.pack("!I", rows_max))


def close(kind, name=""):
    return message("C", kind.encode() + text(name))


def call(oid, *values):
    body = struct.pack("!IHH", oid, 0, len(values))
    for value in values:
        body += struct.pack("!I", len(value)) + value
    return message("F", body + struct.pack("!H", 0))


SYNC, FLUSH, TERMINATE = message("S"), message("H"), message("X")
COPY_DONE = message("c")


def run_extended(sql, *values, results=()):
    return parse(sql) + bind(*values, results=results) + describe("P") + execute()


class Wire:
    """One connection, and the transcript of what came back on it."""

    def __init__(self, stage, log_in=True):
        self.stage, self.transcript, self.kept = stage, [], b""
        self.key = None
        self.socket = socket.create_connection(("127.0.0.1", stage.port), PATIENCE_S)
        if log_in:
            self.log_in()

    def log_in(self, **more):
        parameters = {"user": "postgres", "database": self.stage.database}
        self.send(startup(**parameters | more))
        self.ready()

    def send(self, *parts):
        try:
            self.socket.sendall(b"".join(parts))
        except OSError:
            # The server has closed; that is read next.
            pass

    def receive(self, count):
        while len(self.kept) < count:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            except TimeoutError:
                self.transcript.append("(silence)")
                return None
            if not more:
                self.transcript.append("(closed)" if not self.kept else f"(closed in {self.kept})")
                return None
            self.kept += more
        taken, self.kept = self.kept[:count], self.kept[count:]
        return taken

    def byte(self):
        """An answer to a request for encryption, which is not a message."""
        if (answer := self.receive(1)) is not None:
            self.transcript.append(f"byte {answer}")

    def message(self):
        head = self.receive(5)
        if head is None:
            return None
        kind, length = chr(head[0]), struct.unpack("!I", head[1:])[0]
        body = self.receive(length - 4) if length > 4 else b""
        if body is None:
            return None
        if kind == "K":
            self.key, body = body, b"pid and key"
        self.transcript.append(f"{kind} {shown(body)}")
        return kind

    def messages(self, count):
        for _ in range(count):
            if self.message() is None:
                return

    def ready(self, times=1):
        """Reads up to a ReadyForQuery, or to the end of the connection."""
        while times:
            kind = self.message()
            if kind is None:
                return
            times -= kind == "Z"

    def rest(self):
        """What comes until the server closes, as it is."""
        came = b""
        while (byte := self.receive(1)) is not None:
            came, self.kept = came + byte + self.kept, b""
        self.transcript.insert(-1, shown(came))

    def closed(self):
        while self.message() is not None:
            pass

    def simple(self, *texts):
        for sql in texts:
            self.send(query(sql))
            self.ready()


def shown(body):
    if len(body) > 2000:
        return f"{len(body)} bytes, {hashlib.sha256(body).hexdigest()[:16]}"
    return repr(body)[2:-1]


# Simple queries, one message each; each case on a connection of its own.
TEXTS = {
    "empty query": ["", ";", "/* nothing */"],
    "several statements": ["SELECT 1; SELECT 2 AS two, NULL; SELECT 'three'"],
    "error between statements": ["SELECT 1; SELECT 1/0; SELECT 2", "SELECT 3"],
    "implicit block": ["INSERT INTO t VALUES (901, 'x'); SELECT 1/0", "SELECT * FROM t WHERE k = 901"],
    "block in one message": ["BEGIN; INSERT INTO t VALUES (902, 'x'); COMMIT", "TABLE t"],
    "half a block in a message": ["BEGIN; SELECT 1", "SELECT 2; COMMIT; SELECT 3"],
    "syntax error's position": ["SELEC 1", "SELECT 1; SELEC 2", "BEGIN", "SELECT * FORM t", "ROLLBACK"],
    "position under EXECUTE": [
        "PREPARE p AS SELECT 1/$1::int", "EXECUTE p (0)", "EXECUTE p (no_such)", "EXECUTE absent",
        "BEGIN", "EXECUTE p (no_such)", "ROLLBACK",
    ],
    "position in a function": [
        "CREATE FUNCTION bad() RETURNS int LANGUAGE plpgsql AS 'BEGIN EXECUTE ''SELECT nonsense''; END'",
        "SELECT bad()", "BEGIN; SELECT bad()", "ROLLBACK",
    ],
    "failed block": ["BEGIN", "SELECT 1/0", "SELECT 1", "COMMIT", "SELECT 2"],
    "nested BEGIN": ["BEGIN", "BEGIN", "COMMIT", "COMMIT", "ROLLBACK"],
    "savepoints": [
        "BEGIN", "INSERT INTO t VALUES (903, 'a')", "SAVEPOINT s", "SELECT 1/0", "ROLLBACK TO s",
        "RELEASE s", "COMMIT AND CHAIN", "ROLLBACK", "SELECT count(*) FROM t WHERE k = 903",
    ],
    "read only": ["BEGIN READ ONLY", "INSERT INTO t VALUES (904, 'x')", "ROLLBACK"],
    "isolation first in a block": [
        "BEGIN", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SHOW transaction_isolation", "COMMIT",
    ],
    "isolation after a statement": ["BEGIN", "SELECT 1", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "COMMIT"],
    "isolation after CHECKPOINT": [
        "BEGIN", "CHECKPOINT", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "TABLE t", "COMMIT",
    ],
    "isolation by default": ["SHOW transaction_isolation", "BEGIN", "SHOW transaction_isolation", "COMMIT"],
    "isolation of a session": [
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "BEGIN; SELECT 1; SHOW transaction_isolation; COMMIT",
    ],
    "deferrable": ["BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE", "TABLE t", "COMMIT"],
    "prepared with our name": [
        "PREPARE hindcast_1 AS SELECT 1", "PREPARE hindcast_2 AS SELECT 2", "BEGIN",
        "INSERT INTO t VALUES (905, 'x')", "COMMIT", "EXECUTE hindcast_1",
    ],
    "DEALLOCATE ALL unseen": [
        "BEGIN", "INSERT INTO t VALUES (906, 'x')", "COMMIT", "DO 'BEGIN EXECUTE ''DEALLOCATE ALL''; END'",
        "BEGIN", "INSERT INTO t VALUES (907, 'x')", "COMMIT",
    ],
    "what the recorder keeps, deallocated and listed": [
        *3 * ["BEGIN", "UPDATE t SET v = 'y' WHERE k = 906", "COMMIT"],
        "SELECT name, statement FROM pg_prepared_statements",
        *2 * ["BEGIN", "UPDATE t SET v = 'z' WHERE k = 906", "DEALLOCATE ALL", "COMMIT"],
        *2 * ["BEGIN", "UPDATE t SET v = 'z' WHERE k = 906", "DO 'BEGIN DEALLOCATE ALL; END'", "COMMIT"],
        *2 * ["BEGIN", "SELECT 1/0", "DEALLOCATE ALL", "COMMIT"],
        "PREPARE seen AS SELECT count(*) FROM pg_prepared_statements WHERE name <> 'seen'",
        "BEGIN", "UPDATE t SET v = 'z' WHERE k = 906", "EXECUTE seen", "COMMIT", "EXECUTE seen", "DISCARD ALL",
    ],
    "DISCARD ALL": [
        "BEGIN", "INSERT INTO t VALUES (908, 'x')", "COMMIT", "DISCARD ALL", "BEGIN; TABLE t", "COMMIT",
    ],
    "prepared statements listed": ["BEGIN; TABLE t; COMMIT", "SELECT name, statement FROM pg_prepared_statements"],
    "own text in pg_stat_activity": [
        "BEGIN", "INSERT INTO t VALUES (909, 'x')",
        "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()", "COMMIT",
        "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    ],
    "column called hindcast_ask": ["SELECT 1 AS hindcast_ask", "BEGIN; SELECT 2 AS hindcast_ask; COMMIT"],
    "no id before a write": [
        "BEGIN", "TABLE t", "SELECT pg_current_xact_id_if_assigned() IS NULL", "COMMIT",
        "SELECT pg_current_xact_id_if_assigned() IS NULL",
    ],
    "notices": [
        "DO 'BEGIN RAISE NOTICE ''one''; RAISE WARNING ''two'' USING HINT = ''three''; END'",
        "DROP TABLE IF EXISTS absent", "COMMIT",
    ],
    "parameter status": [
        "SET application_name TO 'a b'", "SET client_encoding TO 'LATIN1'", "SELECT 'é'",
        "SET LOCAL DateStyle TO 'German'", "BEGIN; SET LOCAL TimeZone TO 'UTC'; COMMIT", "RESET ALL",
    ],
    "cursors": [
        "BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 5)", "FETCH 2 FROM c",
        "MOVE 1 FROM c", "COMMIT", "FETCH ALL FROM c", "CLOSE c", "FETCH c",
    ],
    "refuses a block": [
        "VACUUM t", "BEGIN", "VACUUM t", "ROLLBACK", "CREATE INDEX CONCURRENTLY i ON t (v)",
        "DROP INDEX CONCURRENTLY i", "REINDEX TABLE t", "SELECT 1; VACUUM t",
    ],
    "procedures that commit": [
        "CREATE PROCEDURE p() LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO t VALUES (910, ''a''); COMMIT; INSERT INTO t VALUES (911, ''b''); END'",
        "CALL p()", "BEGIN", "CALL p()", "ROLLBACK", "DO 'BEGIN COMMIT; END'",
    ],
    "two phases": [
        "BEGIN", "INSERT INTO t VALUES (912, 'x')", "PREPARE TRANSACTION 'x'", "SELECT count(*) FROM t WHERE k = 912",
        "COMMIT PREPARED 'x'", "ROLLBACK PREPARED 'x'",
    ],
    "temporary tables": [
        "CREATE TEMP TABLE tt (k int) ON COMMIT DROP", "BEGIN; CREATE TEMP TABLE tt (k int); DISCARD TEMP; COMMIT",
        "CREATE TEMP TABLE tt AS SELECT 1", "TABLE tt",
    ],
    "statement timeout": ["SET statement_timeout TO 50", "SELECT pg_sleep(30)", "SELECT 1"],
    "texts that look like ours": [
        "/* traceparent='00-00000000000000000000000000000000-0000000000000000-00' */ SELECT 1",
        "SELECT 'BEGIN; COMMIT' -- ; ROLLBACK", "SELECT $q$; COMMIT; $q$; SELECT 2", "SELECT E'\\'; COMMIT'",
    ],
    "copy out": ["COPY (SELECT generate_series(1, 3)) TO STDOUT", "BEGIN; COPY t TO STDOUT (FORMAT binary); COMMIT"],
    "foreign snapshot": ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION SNAPSHOT 'nonsense'", "ROLLBACK"],
    "rules with RETURNING": [
        "INSERT INTO t VALUES (913, 'x') RETURNING k, v", "UPDATE t SET v = 'y' WHERE k = 913 RETURNING v",
        "DELETE FROM t WHERE k = 913",
    ],
    "long identifiers": [f'SELECT 1 AS "{"n" * 70}"', f"PREPARE {'p' * 70} AS SELECT 1", f"EXECUTE {'p' * 63}"],
    "a large row": ["SELECT repeat('x', 20000000)", "SELECT 1"],
    "a large text": [f"SELECT length('{'y' * 5000000}')"],
    "ends itself": ["BEGIN", "SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1"],
}  # fmt: skip


# First packets that end badly. What comes back until the server closes is kept as raw bytes.
STARTUPS = {
    "no user": startup(database="x"),
    "unknown user": startup(user="nobody here"),
    "unknown database": startup(user="postgres", database="absent"),
    "unknown parameter": startup(user="postgres", database="raw", nonsense="1"),
    "wrong option": startup(user="postgres", database="raw", options="-c nonsense"),
    "no terminator": packet(VERSION_3, b"user\0postgres\0")[:-1] + b"x",
    "odd number of texts": packet(VERSION_3, b"user\0"),
    "version 2": startup(2 << 16, user="postgres"),
    "version 4": startup(4 << 16, user="postgres"),
    "length 0": b"\0\0\0\0",
    "length 7": struct.pack("!I", 7) + b"abc",
    "length of a gigabyte": struct.pack("!I", 1 << 30) + b"abc",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "SSL with more behind it": packet(SSL_REQUEST) * 2,
    "cancel of nothing": packet(CANCEL_REQUEST, b"\0\0\0\1\0\0\0\2"),
    "cancel too short": packet(CANCEL_REQUEST, b"\0\0"),
}

# One message after login that the server cannot take; whether it goes on is part of the answer.
BROKEN = {
    "unknown message": message("y", b"abc"),
    "message of type 0": b"\0\0\0\0\4",
    "length 3": b"Q\0\0\0\3",
    "Sync of a gigabyte": b"S\x40\0\0\0",
    "negative length": b"Q\xff\xff\xff\xff",
    "query without end": message("Q", b"SELECT 1"),
    "query with two ends": message("Q", b"SELECT 1\0SELECT 2\0"),
    "query not in UTF-8": message("Q", b"SELECT '\xff\xfe'\0"),
    "password out of turn": message("p", b"secret\0"),
    "Sync with a body": message("S", b"x"),
    "Bind cut off": message("B", b"\0\0\0\1"),
    "Parse without end": message("P", b"name"),
    "Describe of neither": message("D", b"X\0"),
    "copy out of turn": message("d", b"1\n") + COPY_DONE + message("f", b"no\0"),
    "empty FunctionCall": message("F"),
}

# Messages by the extended protocol, and how many times ReadyForQuery ends the answer.
EXTENDED = {
    "one round": (run_extended("SELECT $1::int + 1", 41) + SYNC, 1),
    "binary result": (run_extended("SELECT 1::int4, 'x'::text", results=(1,)) + SYNC, 1),
    "empty statement": (run_extended("") + SYNC, 1),
    "Sync alone": (SYNC * 3, 3),
    "several rounds at once": (run_extended("SELECT 1") + SYNC + run_extended("SELECT 2") + SYNC, 2),
    "several statements in one round": (run_extended("SELECT 1") + run_extended("SELECT 2") + SYNC, 1),
    "error skips to Sync": (run_extended("SELECT 1/0") + run_extended("SELECT 2") + SYNC + SYNC, 2),
    "error, then a round": (run_extended("SELEC") + SYNC + run_extended("SELECT 2") + SYNC, 2),
    "unknown statement": (bind(statement="absent") + execute() + SYNC, 1),
    "unknown portal": (execute("absent") + SYNC, 1),
    "Close of nothing": (close("S", "absent") + close("P", "absent") + SYNC, 1),
    "the same name twice": (parse("SELECT 1", "s") * 2 + SYNC + parse("SELECT 2", "s") + SYNC, 2),
    "too few values": (parse("SELECT $1::int, $2::int") + bind(1) + SYNC, 1),
    "value of a wrong type": (run_extended("SELECT $1::int", "x") + SYNC, 1),
    "types to Describe": (parse("SELECT $1::int, $2", "s", (0, 25)) + describe("S", "s") + SYNC, 1),
    "two statements in Parse": (parse("SELECT 1; SELECT 2") + SYNC, 1),
    "suspended portal": (
        parse("SELECT generate_series(1, 5)") + bind(portal="c") + execute("c", 2) * 3 + SYNC, 1,
    ),
    "portal over Sync": (
        query("BEGIN") + parse("SELECT generate_series(1, 5)") + bind(portal="c") + execute("c", 2)
        + SYNC + execute("c", 2) + SYNC + query("COMMIT") + execute("c") + SYNC, 5,
    ),
    "a block": (
        run_extended("BEGIN") + run_extended("INSERT INTO t VALUES (920, 'x')") + run_extended("COMMIT") + SYNC, 1,
    ),
    "a block in rounds": (
        run_extended("BEGIN") + SYNC + run_extended("INSERT INTO t VALUES ($1, 'x')", 921) + SYNC
        + run_extended("COMMIT") + SYNC, 3,
    ),
    "a failed block": (
        run_extended("BEGIN") + SYNC + run_extended("SELECT 1/0") + SYNC + run_extended("SELECT 1")
        + SYNC + run_extended("ROLLBACK") + SYNC, 4,
    ),
    "implicit block over statements": (
        run_extended("INSERT INTO t VALUES (922, 'x')") + run_extended("SELECT 1/0") + SYNC
        + query("SELECT count(*) FROM t WHERE k = 922"), 2,
    ),
    "commit within a round": (
        run_extended("INSERT INTO t VALUES (923, 'x')") + run_extended("COMMIT")
        + run_extended("INSERT INTO t VALUES (924, 'x')") + SYNC, 1,
    ),
    "isolation in a round": (
        run_extended("BEGIN") + run_extended("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        + run_extended("SHOW transaction_isolation") + run_extended("COMMIT") + SYNC, 1,
    ),
    "unnamed statement kept": (
        parse("SELECT $1::int * 2") + SYNC + bind(21) + execute() + SYNC
        + query("BEGIN") + query("COMMIT") + bind(4) + execute() + SYNC, 5,
    ),
    "unnamed statement kept over a block": (
        query("BEGIN") + parse("INSERT INTO t VALUES ($1, 'x')") + SYNC + bind(925) + execute() + SYNC
        + bind(926) + execute() + SYNC + run_extended("COMMIT") + SYNC, 5,
    ),
    "simple and extended mixed": (
        run_extended("SELECT 1") + query("SELECT 2") + run_extended("SELECT 3") + SYNC, 2,
    ),
    "VACUUM in a round": (run_extended("VACUUM t") + SYNC + run_extended("SELECT 1") + run_extended("VACUUM t") + SYNC, 2),
    "DISCARD ALL in a round": (
        parse("SELECT 1", "s") + SYNC + run_extended("DISCARD ALL") + SYNC + bind(statement="s") + SYNC
        + query("BEGIN") + query("TABLE t") + query("COMMIT"), 6,
    ),
    "copy in": (
        query("COPY t FROM STDIN") + message("d", b"930\ta\n931\t") + message("d", b"b\n") + COPY_DONE, 1,
    ),
    "copy in that fails": (query("COPY t FROM STDIN") + message("d", b"x\n") + COPY_DONE, 1),
    "copy in given up": (query("COPY t FROM STDIN") + message("f", b"changed my mind\0"), 1),
    "copy in with a query inside": (query("COPY t FROM STDIN") + query("SELECT 1") + query("SELECT 2"), 2),
    "copy in by Execute": (
        parse("COPY t FROM STDIN") + bind() + execute() + message("d", b"932\ta\n") + COPY_DONE + SYNC, 1,
    ),
    "copy in with Sync inside": (
        parse("COPY t FROM STDIN") + bind() + execute() + SYNC + message("d", b"933\ta\n") + SYNC
        + COPY_DONE + SYNC, 1,
    ),
    "function call": (call(177, struct.pack("!i", 2), struct.pack("!i", 3)), 1),
    "function call, unknown": (call(1), 1),
    "function call in a block": (query("BEGIN") + call(177, b"2", b"3") + query("COMMIT"), 3),
    "Terminate with a body": (message("X", b"more"), 1),
}  # fmt: skip


def flush(wire):
    wire.send(parse("SELECT 1") + FLUSH)
    wire.messages(1)
    wire.send(bind() + describe("P") + execute() + FLUSH)
    wire.messages(4)
    wire.send(SYNC)
    wire.ready()


def flush_in_a_block(wire):
    wire.simple("BEGIN")
    wire.send(parse("INSERT INTO t VALUES (940, 'x')") + bind() + execute() + FLUSH)
    wire.messages(3)
    wire.send(run_extended("COMMIT") + FLUSH)
    wire.messages(4)
    wire.send(SYNC)
    wire.ready()


def byte_by_byte(wire):
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in query("BEGIN; TABLE t; COMMIT") + run_extended("SELECT $1::text", "x") + SYNC:
        wire.send(bytes([byte]))
    wire.ready(2)


def cancel(wire):
    wire.simple("BEGIN", "SET LOCAL statement_timeout TO '15s'")
    wire.send(query("SELECT pg_sleep(30)"))
    other = Wire(wire.stage)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    for _ in range(1000):
        if "D \\x00\\x01\\x00\\x00\\x00\\x011" in other.transcript:
            break
        other.simple(waits)
    again = Wire(wire.stage, log_in=False)
    again.send(packet(CANCEL_REQUEST, wire.key))
    again.closed()
    wire.ready()
    wire.simple("ROLLBACK", "SELECT 1")


def notify(wire):
    wire.simple("LISTEN n")
    other = Wire(wire.stage)
    other.simple("BEGIN", "NOTIFY n, 'payload'", "COMMIT")
    # Comes by itself, to a session that asks for nothing.
    wire.messages(1)
    wire.simple("NOTIFY n", "SELECT 1")


def notice_before_a_wait(wire):
    """What a statement says before it waits for a lock comes at once, and not with its end."""
    other = Wire(wire.stage)
    other.simple("BEGIN", "LOCK TABLE t")
    wire.send(query("BEGIN"))
    wire.ready()
    wire.send(query("DO 'BEGIN RAISE NOTICE ''before''; LOCK TABLE t; END'"))
    wire.messages(1)
    other.simple("COMMIT")
    wire.ready()
    wire.simple("COMMIT")


def ends_in_a_block(wire):
    """What a session leaves behind that goes without a word."""
    wire.simple("BEGIN", "INSERT INTO t VALUES (941, 'x')")
    wire.socket.close()
    other = Wire(wire.stage)
    other.simple("SELECT count(*) FROM t WHERE k = 941")
    wire.transcript += other.transcript


def idle_in_a_block(wire):
    wire.simple("SET idle_in_transaction_session_timeout TO 100", "BEGIN", "TABLE t")
    wire.closed()


def replication(wire):
    wire.log_in(replication="database")
    wire.simple("SHOW server_version", "SELECT 1", "START_REPLICATION nonsense")


def later_minor_version(wire):
    wire.send(startup(VERSION_3 + 9999, user="postgres", database="raw", **{"_pq_.nonsense": "1"}))
    wire.ready()
    wire.simple("SELECT 1")


def encryption_then_login(wire):
    wire.send(packet(SSL_REQUEST))
    wire.byte()
    wire.log_in()
    wire.simple("SELECT 1")


def encryption_asked_for_twice(wire):
    for _ in range(2):
        wire.send(packet(SSL_REQUEST))
        wire.byte()
    wire.rest()


def gss_asked_for(wire):
    wire.send(packet(GSSENC_REQUEST))
    wire.byte()


def login_byte_by_byte(wire):
    for byte in startup(user="postgres", database="raw"):
        wire.send(bytes([byte]))
    wire.ready()


def all_at_once(wire):
    """Login and queries in one packet, before the server has said anything."""
    wire.send(startup(user="postgres", database="raw"), query("BEGIN; TABLE t; COMMIT"), TERMINATE)
    wire.closed()


# After a login, and before one.
STORIES = [
    flush, flush_in_a_block, byte_by_byte, cancel, notify, notice_before_a_wait, ends_in_a_block,
    idle_in_a_block,
]  # fmt: skip
LOGINS = [
    replication, later_minor_version, encryption_then_login, encryption_asked_for_twice, gss_asked_for,
    login_byte_by_byte, all_at_once,
]  # fmt: skip


def cases():
    """Each case's name, whether it begins with a login, and what it does."""
    for name, first in STARTUPS.items():
        yield f"startup: {name}", False, partial(first_packet, first)
    for name, broken in BROKEN.items():
        yield f"broken: {name}", True, partial(after_broken, broken)
    for name, (sent, times) in EXTENDED.items():
        yield f"extended: {name}", True, partial(rounds, sent, times)
    for name, texts in TEXTS.items():
        yield f"text: {name}", True, partial(simple_queries, texts)
    for log_in, stories in ((True, STORIES), (False, LOGINS)):
        for story in stories:
            yield f"story: {story.__name__.replace('_', ' ')}", log_in, story


def first_packet(first, wire):
    wire.send(first)
    wire.rest()


def rounds(sent, times, wire):
    wire.send(sent)
    wire.ready(times)


def simple_queries(texts, wire):
    wire.simple(*texts)


def after_broken(broken, wire):
    """A session that goes on answers a Sync and a query; one that does not has closed."""
    wire.send(broken, SYNC, query("SELECT 'alive'"), TERMINATE)
    wire.closed()


class Protocol:
    name, database = "protocol", "raw"
    settings = {"max_prepared_transactions": "10"}

    def prepare(self, sources):
        pass

    def set_up(self, stage):
        stage.sql("CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one')")

    def run(self, stage):
        outcomes = {}
        for name, log_in, act in cases():
            # Each begins with the same rows, whatever the one before it left.
            stage.sql("DELETE FROM t WHERE k > 900")
            wire = Wire(stage, log_in)
            act(wire)
            wire.socket.close()
            silent = "(silence)" in wire.transcript
            transcript = "\n".join(map(masked, wire.transcript))
            outcomes[name] = Outcome(FAILED if silent else PASSED, transcript)
        return outcomes


def masked(line):
    """Without what differs between two sessions of the same server."""
    if line.startswith("A "):
        return re.sub(r"^A (\\x..|[^\\]){4}", "A pid", line)
    return line


SUITES = [Protocol()]
