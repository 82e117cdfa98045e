"""`hindcast standby` against Postgres' own logical replication: the figure `standby` of bench/figures.

A primary and a backup, two private throw-away clusters. The backup has a database for each side: `ours` is filled by hindcast, `stock` by
a subscription. Both sides follow the same database of the primary, one at a time: the other one is stopped meanwhile.
"""

import contextlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from common import PROGRAMS, ROOT, cpu_seconds, free_port, machine, middle, wait_for

ROUNDS = 3
SETTINGS = "fsync on, synchronous_commit and autovacuum off, wal_writer_delay 10 ms, 256 MB of shared buffers"
PARTS = ("catch-up", "reader", "live", "granularity", "store")
NAME = "bench"
SAMPLE_EVERY = 0.02
POLL_EVERY = 0.01
PROBE_EVERY = 0.02


class Failed(Exception):
    """Something measured did not do what it should; the other parts are measured all the same."""


# --- Postgres


class Session:
    """A connection to a private cluster, which trusts everybody: the simple query protocol and texts."""

    def __init__(self, port, database):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")
        words = b"".join(w.encode() + b"\0" for w in ("user", "postgres", "database", database, "application_name", "bench"))
        self.socket.sendall(struct.pack("!ii", len(words) + 9, 196608) + words + b"\0")
        self._until_ready("connect")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()
            self.stream.close()

    def query(self, sql):
        """The rows of the last statement, as lists of texts."""
        body = sql.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return self._until_ready(sql)

    def value(self, sql):
        rows = self.query(sql)
        return rows[0][0] if rows else None

    def _until_ready(self, what):
        rows, error = [], None
        while True:
            head = self.stream.read(5)
            if len(head) < 5:
                raise Failed(f"{error or 'Postgres closed the connection'}: {what}")
            kind, size = head[:1], struct.unpack("!i", head[1:])[0] - 4
            body = self.stream.read(size)
            if kind == b"D":
                rows.append(list(self._values(body)))
            elif kind == b"T":
                rows = []
            elif kind == b"E":
                error = next((field[1:].decode() for field in body.split(b"\0") if field[:1] == b"M"), "an error")
            elif kind == b"Z":
                if error:
                    raise Failed(f"{error}: {what}")
                return rows

    @staticmethod
    def _values(body):
        at = 2
        for _ in range(struct.unpack("!h", body[:2])[0]):
            size = struct.unpack("!i", body[at : at + 4])[0]
            at += 4
            yield None if size < 0 else body[at : at + size].decode()
            at += max(size, 0)


def postgres_programs():
    versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    if not found:
        raise SystemExit("Error: no Postgres server is installed\nHint: scripts/setup bench")
    return pathlib.Path(found).resolve().parent


class Cluster:
    """A private Postgres that ends with us."""

    def __init__(self, folder, name, **settings):
        self.bin, self.port, self.data = postgres_programs(), free_port(), folder / name
        self.data.mkdir(mode=0o700)
        # Postgres refuses to run as root.
        self.owner = {}
        if os.geteuid() == 0:
            postgres = pwd.getpwnam("postgres")
            os.chown(self.data, postgres.pw_uid, postgres.pw_gid)
            self.owner = {"user": postgres.pw_uid, "group": postgres.pw_gid, "extra_groups": []}
        done = subprocess.run(
            [self.bin / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            capture_output=True, text=True, cwd="/", **self.owner,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"Error: initdb\n{done.stderr}")
        settings = {
            "port": self.port, "listen_addresses": "'127.0.0.1'", "unix_socket_directories": f"'{self.data}'",
            "synchronous_commit": "off", "max_wal_senders": 20, "max_replication_slots": 20, "shared_buffers": "256MB",
            "max_wal_size": "4GB", "max_connections": 100, "autovacuum": "off", "max_worker_processes": 20,
            # What a worker waits before it is started again would be measured otherwise, and what commits wait for the WAL writer: nobody
            # is sent what is not on disk.
            "wal_retrieve_retry_interval": "100ms", "wal_writer_delay": "10ms", **settings,
        }  # fmt: skip
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.writelines(f"{key} = {value}\n" for key, value in settings.items())
        self.log = folder / f"{name}.log"
        # A session of its own: Ctrl-C is for us, and we end it last.
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.data], stdout=log, stderr=log, cwd="/", start_new_session=True, **self.owner
            )

    def ready(self):
        if self.process.poll() is not None:
            raise SystemExit(f"Error: Postgres ended\n{self.log.read_text()}")
        with contextlib.suppress(OSError, Failed), Session(self.port, "postgres") as session:
            return session.value("SELECT 1") == "1"
        return False

    def stop(self):
        # At once, what it wrote is thrown away.
        end(self.process, signal.SIGQUIT, 20)

    def url(self, database):
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def children(self):
        pid = self.process.pid
        with contextlib.suppress(OSError):
            return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []


def end(child, how, patience):
    if child.poll() is not None:
        return
    child.send_signal(how)
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def running_seconds(pid):
    """CPU seconds of a process with one thread, finer than ticks where the kernel keeps them."""
    with contextlib.suppress(FileNotFoundError):
        return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return cpu_seconds(pid)


class Sampler:
    """CPU seconds of the walsenders on the primary, and on the backup of what applies: hindcast's sessions, or the apply worker. Who ends
    has been looked at 20 ms before at most."""

    def __init__(self, stage, every=SAMPLE_EVERY):
        self.every = every
        self.clusters = [stage.primary, stage.backup]
        self.sessions = [Session(cluster.port, "postgres") for cluster in self.clusters]
        self.first, self.last, self.roles = {}, {}, {}
        self.done = threading.Event()
        self.look(new=False)
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        with contextlib.suppress(Failed, OSError):
            while not self.done.wait(self.every):
                self.look(new=True)

    def look(self, new):
        for cluster, session in zip(self.clusters, self.sessions):
            pids = cluster.children()
            if any(pid not in self.roles for pid in pids):
                rows = session.query("SELECT pid, backend_type, application_name FROM pg_catalog.pg_stat_activity")
                for pid, kind, name in rows:
                    role = "walsender" if kind == "walsender" else "other"
                    if kind == "logical replication worker" or (cluster is self.clusters[1] and (name or "").startswith("hindcast")):
                        role = "applier"
                    self.roles.setdefault(int(pid), role)
            for pid in pids:
                if self.roles.get(pid, "new") != "other":
                    with contextlib.suppress(OSError):
                        self.last[pid] = running_seconds(pid)
                        self.first.setdefault(pid, 0.0 if new else self.last[pid])

    def stop(self):
        self.done.set()
        self.thread.join()
        with contextlib.suppress(Failed, OSError):
            self.look(new=True)
        for session in self.sessions:
            session.close()
        used = {"walsender": 0.0, "applier": 0.0}
        for pid, seconds in self.last.items():
            if self.roles.get(pid) in used:
                used[self.roles[pid]] += seconds - self.first[pid]
        return used


# --- The two sides


class Ours:
    """A `hindcast standby`, running."""

    def __init__(self, stage, *more):
        self.log = stage.folder / f"hindcast-{len(stage.children)}.log"
        arguments = ["--from", stage.primary.url("bench"), "--to", stage.backup.url("ours"), "--name", NAME, "--json", *map(str, more)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([PROGRAMS / "hindcast", "standby", *arguments], stdout=log, stderr=log, start_new_session=True)
        stage.children.append(self.process)
        self.cpu = 0.0

    def ended(self):
        """Whether it has ended, which is to be in good order."""
        if self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid == 0:
                return False
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu = usage.ru_utime + usage.ru_stime
        if self.process.returncode != 0:
            said = self.log.read_text().splitlines()
            why = [line for line in said if line.startswith(("Error:", "Cause:"))] or said[-5:]
            raise Failed(f"hindcast standby ended with {self.process.returncode}: {' '.join(why)}")
        return True

    def stop(self):
        if not self.ended():
            self.process.send_signal(signal.SIGINT)
            wait_until("hindcast standby to stop", self.ended, 60)

    def status(self):
        for line in reversed(self.log.read_text().splitlines()):
            with contextlib.suppress(ValueError):
                return json.loads(line)
        return {}


def wait_until(what, fact, patience, every=POLL_EVERY):
    deadline = time.monotonic() + patience
    while not fact():
        if time.monotonic() > deadline:
            raise Failed(f"waited {patience:g} s in vain for {what}")
        time.sleep(every)


SCHEMA = """
CREATE TABLE acc (id int PRIMARY KEY, v int NOT NULL, pad text NOT NULL);
CREATE TABLE zipf (id int PRIMARY KEY, v int NOT NULL, pad text NOT NULL);
CREATE TABLE ins (id bigserial PRIMARY KEY, v int NOT NULL, pad text NOT NULL);
CREATE TABLE adv (id bigserial PRIMARY KEY, v int NOT NULL);
CREATE TABLE hot (id int PRIMARY KEY, v bigint NOT NULL);
CREATE TABLE warehouse (id int PRIMARY KEY, name text NOT NULL, ytd numeric(12,2) NOT NULL);
CREATE TABLE district (w int, id int, name text NOT NULL, ytd numeric(12,2) NOT NULL, PRIMARY KEY (w, id));
CREATE TABLE customer (w int, d int, id int, data text NOT NULL, balance numeric(12,2) NOT NULL, paid numeric(12,2) NOT NULL,
    payments int NOT NULL, PRIMARY KEY (w, d, id));
CREATE TABLE history (id bigserial PRIMARY KEY, w int, d int, c int, at timestamptz NOT NULL, amount numeric(6,2) NOT NULL, data text NOT NULL);
CREATE TABLE next_order (w int, d int, id int NOT NULL, PRIMARY KEY (w, d));
CREATE TABLE stock (w int, i int, quantity int NOT NULL, ytd int NOT NULL, orders int NOT NULL, data text NOT NULL, PRIMARY KEY (w, i));
CREATE TABLE orders (w int, d int, id int, c int NOT NULL, at timestamptz NOT NULL, lines int NOT NULL, PRIMARY KEY (w, d, id));
CREATE TABLE new_order (w int, d int, o int, PRIMARY KEY (w, d, o));
CREATE TABLE order_line (w int, d int, o int, line int, i int NOT NULL, quantity int NOT NULL, amount numeric(6,2) NOT NULL, PRIMARY KEY (w, d, o, line));
CREATE TABLE marker (id int PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE probe (n int PRIMARY KEY, at timestamptz NOT NULL);
INSERT INTO acc SELECT g, 0, repeat('x', 80) FROM generate_series(1, 100000) g;
INSERT INTO zipf SELECT g, 0, repeat('x', 80) FROM generate_series(1, 10000) g;
INSERT INTO hot VALUES (1, 0);
INSERT INTO marker VALUES (1, 0);
INSERT INTO warehouse VALUES (1, 'w1', 0);
INSERT INTO district SELECT 1, g, 'd' || g, 0 FROM generate_series(1, 10) g;
INSERT INTO customer SELECT 1, d, c, repeat('x', 200), 0, 0, 0 FROM generate_series(1, 10) d, generate_series(1, 3000) c;
INSERT INTO next_order SELECT 1, g, 1 FROM generate_series(1, 10) g;
INSERT INTO stock SELECT 1, g, 50, 0, 0, repeat('x', 50) FROM generate_series(1, 20000) g;
CREATE PROCEDURE payment_first(d_ int, c_ int, amount_ numeric) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE warehouse SET ytd = ytd + amount_ WHERE id = 1;
    UPDATE district SET ytd = ytd + amount_ WHERE w = 1 AND id = d_;
    UPDATE customer SET balance = balance - amount_, paid = paid + amount_, payments = payments + 1 WHERE w = 1 AND d = d_ AND id = c_;
    INSERT INTO history (w, d, c, at, amount, data) VALUES (1, d_, c_, now(), amount_, 'w1    d' || d_);
END $$;
CREATE PROCEDURE payment_last(d_ int, c_ int, amount_ numeric) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history (w, d, c, at, amount, data) VALUES (1, d_, c_, now(), amount_, 'w1    d' || d_);
    UPDATE customer SET balance = balance - amount_, paid = paid + amount_, payments = payments + 1 WHERE w = 1 AND d = d_ AND id = c_;
    UPDATE district SET ytd = ytd + amount_ WHERE w = 1 AND id = d_;
    UPDATE warehouse SET ytd = ytd + amount_ WHERE id = 1;
END $$;
CREATE PROCEDURE order_stock(seed_ int, lines_ int) LANGUAGE plpgsql AS $$
BEGIN
    -- In ascending order: no deadlocks.
    FOR line_ IN 1 .. lines_ LOOP
        UPDATE stock SET quantity = CASE WHEN quantity > 15 THEN quantity - 5 ELSE quantity + 86 END, ytd = ytd + 5, orders = orders + 1
            WHERE w = 1 AND i = (line_ - 1) * 1300 + 1 + seed_ % 1300;
    END LOOP;
END $$;
CREATE PROCEDURE order_lines(d_ int, o_ int, c_ int, seed_ int, lines_ int) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO orders VALUES (1, d_, o_, c_, now(), lines_);
    INSERT INTO new_order VALUES (1, d_, o_);
    FOR line_ IN 1 .. lines_ LOOP
        INSERT INTO order_line VALUES (1, d_, o_, line_, (line_ - 1) * 1300 + 1 + seed_ % 1300, 5, 9.99);
    END LOOP;
END $$;
CREATE PROCEDURE order_first(d_ int, c_ int, seed_ int, lines_ int) LANGUAGE plpgsql AS $$
DECLARE o_ int;
BEGIN
    UPDATE next_order SET id = id + 1 WHERE w = 1 AND d = d_ RETURNING id INTO o_;
    CALL order_stock(seed_, lines_);
    CALL order_lines(d_, o_, c_, seed_, lines_);
END $$;
CREATE PROCEDURE order_last(d_ int, c_ int, seed_ int, lines_ int) LANGUAGE plpgsql AS $$
DECLARE o_ int;
BEGIN
    CALL order_stock(seed_, lines_);
    -- What is inserted depends on it: later is not possible.
    UPDATE next_order SET id = id + 1 WHERE w = 1 AND d = d_ RETURNING id INTO o_;
    CALL order_lines(d_, o_, c_, seed_, lines_);
END $$;
"""


def adversarial(inserts):
    # One message for the whole transaction; the hot row last.
    script = f"BEGIN \\; INSERT INTO adv (v) SELECT generate_series(1, {inserts}) \\; UPDATE hot SET v = v + 1 WHERE id = 1 \\; COMMIT;"
    return script, "simple", ["adv", "hot"]


def payment(procedure):
    script = f"\\set d random(1, 10)\n\\set c random(1, 3000)\n\\set amount random(1, 5000)\nCALL {procedure}(:d, :c, :amount);"
    return script, "prepared", ["warehouse", "district", "customer", "history"]


def new_order(procedure):
    script = f"\\set d random(1, 10)\n\\set c random(1, 3000)\n\\set seed random(0, 1299)\n\\set lines random(5, 15)\nCALL {procedure}(:d, :c, :seed, :lines);"
    return script, "prepared", ["next_order", "stock", "orders", "new_order", "order_line"]


# Name: script, protocol, tables that it changes.
WORKLOADS = {
    "single-row updates": ("\\set id random(1, 100000)\nUPDATE acc SET v = v + 1 WHERE id = :id;", "prepared", ["acc"]),
    "single-row inserts": ("INSERT INTO ins (v, pad) VALUES (1, repeat('x', 80));", "prepared", ["ins"]),
    "Zipf updates": ("\\set id random_zipfian(1, 10000, 1.07)\nUPDATE zipf SET v = v + 1 WHERE id = :id;", "prepared", ["zipf"]),
    "adversarial, n = 1": adversarial(1),
    "adversarial, n = 4": adversarial(4),
    "adversarial, n = 16": adversarial(16),
    "adversarial, n = 64": adversarial(64),
    "Payment, hot rows first": payment("payment_first"),
    "Payment, hot rows last": payment("payment_last"),
    "NewOrder, hot row first": new_order("order_first"),
    "NewOrder, hot row last": new_order("order_last"),
}
# Where a transaction has many rows there are fewer, where it has one there are more: of 100.
SHARES = {"single-row updates": 300, "single-row inserts": 300, "Zipf updates": 300, "adversarial, n = 16": 30, "adversarial, n = 64": 10, "NewOrder, hot row first": 20, "NewOrder, hot row last": 20}
PGBENCH = ["pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history"]


class Stage:
    """Two clusters, a database on the primary, and two copies of it on the backup."""

    def __init__(self, options):
        self.options = options
        self.patience = 20 if options.quick else 3600
        # Between visible and durable.
        self.settling = 5 if options.quick else 60
        self.children, self.clusters, self.marker = [], [], 0
        self.stack = contextlib.ExitStack()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hindcast-bench-standby-"))

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()
        for child in reversed(self.children):
            end(child, signal.SIGINT, 5)
        # The walsenders of the primary wait for whom they serve.
        for cluster in reversed(self.clusters):
            cluster.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def set_up(self):
        self.folder.chmod(0o755)
        self.clusters.append(Cluster(self.folder, "primary", wal_level="logical"))
        self.clusters.append(Cluster(self.folder, "backup"))
        self.primary, self.backup = self.clusters
        for cluster in self.clusters:
            wait_for("Postgres", cluster.ready)
        with Session(self.primary.port, "postgres") as admin:
            admin.query("CREATE DATABASE bench")
        with Session(self.backup.port, "postgres") as admin:
            for side in ("ours", "stock"):
                admin.query(f"CREATE DATABASE {side}")
        self.sql = self.stack.enter_context(Session(self.primary.port, "bench"))
        self.sql.query("SET synchronous_commit = on")
        self.copies = {side: self.stack.enter_context(Session(self.backup.port, side)) for side in ("ours", "stock")}
        self.program("pgbench", "-i", "-q", "-s", 1 if self.options.quick else 10, *self.at(self.primary, "bench"))
        self.sql.query("ALTER TABLE pgbench_history ADD COLUMN id bigserial PRIMARY KEY")
        self.sql.query(SCHEMA)
        self.tables = [row[0] for row in self.sql.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")]
        schema = self.program("pg_dump", "--schema-only", *self.at(self.primary, "bench"))
        self.program("psql", "-qX", "-v", "ON_ERROR_STOP=1", *self.at(self.backup, "stock"), stdin=schema)
        # Ours copies.
        until, _ = self.mark()
        began = time.monotonic()
        ours = Ours(self, "--until", until)
        wait_until("the copy", ours.ended, self.patience)
        print(f"ours has copied, {time.monotonic() - began:.1f} s", flush=True)
        # And the subscription.
        began = time.monotonic()
        self.sql.query(f"CREATE PUBLICATION stock FOR TABLE {', '.join(self.tables)}")
        source = f"host=127.0.0.1 port={self.primary.port} user=postgres dbname=bench"
        self.copies["stock"].query(f"CREATE SUBSCRIPTION stock CONNECTION '{source}' PUBLICATION stock WITH (copy_data = true)")
        unready = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
        wait_until("the subscription's copy", lambda: self.copies["stock"].value(unready) == "0", self.patience)
        print(f"the subscription has copied, {time.monotonic() - began:.1f} s", flush=True)
        self.disable()
        self.check(self.tables)

    def at(self, cluster, database):
        return ["-h", "127.0.0.1", "-p", cluster.port, "-U", "postgres", database]

    def program(self, name, *arguments, stdin=None):
        command = [self.primary.bin / name, *map(str, arguments)]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.children.append(child)
        out, errors = child.communicate(stdin)
        if child.returncode:
            raise Failed(f"{name} {' '.join(map(str, arguments))}: {errors[-1500:]}")
        return out

    def pgbench(self, cluster, database, *more):
        """Starts a pgbench."""
        command = [self.primary.bin / "pgbench", "-n", *map(str, more), *map(str, self.at(cluster, database))]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.children.append(child)
        return child

    def tps(self, child):
        out, errors = child.communicate()
        if child.returncode:
            raise Failed(f"pgbench: {errors[-1500:]}")
        return next(float(line.split()[2]) for line in out.splitlines() if line.startswith("tps ="))

    def work(self, name, transactions):
        """A backlog, and the mark that is its end."""
        script, protocol, _ = WORKLOADS[name]
        file = self.folder / "workload.sql"
        file.write_text(script + "\n")
        clients = 2
        child = self.pgbench(self.primary, "bench", "-c", clients, "-j", 1, "-t", transactions // clients, "-M", protocol, "-f", file)
        rate = self.tps(child)
        return rate, *self.mark()

    def mark(self):
        """Where the primary is now, all of it on disk, and the last value of the marker there."""
        self.marker += 1
        # This session commits synchronously.
        self.sql.query(f"UPDATE marker SET n = {self.marker}")
        if not self.options.quick:
            self.sql.query("CHECKPOINT")
        return self.sql.value("SELECT pg_current_wal_flush_lsn()"), self.marker

    def tidy(self, tables):
        if self.options.quick:
            return
        for session in self.copies.values():
            for table in tables:
                session.query(f"VACUUM (ANALYZE) {table}")
        self.copies["stock"].query("CHECKPOINT")

    def check(self, tables, sides=("ours", "stock")):
        """The copies equal the original."""
        for table in tables:
            sums = f"SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {table} t"
            original = self.sql.query(sums)
            for side in sides:
                if self.copies[side].query(sums) != original:
                    raise Failed(f"{table} of {side} is not what it is on the primary: {self.copies[side].query(sums)}, {original}")

    def visible(self, side, marker):
        return int(self.copies[side].value("SELECT n FROM marker")) >= marker

    def confirmed(self, until):
        return self.sql.value(f"SELECT confirmed_flush_lsn >= '{until}' FROM pg_replication_slots WHERE slot_name = 'stock'") == "t"

    def enable(self):
        self.copies["stock"].query("ALTER SUBSCRIPTION stock ENABLE")

    def disable(self):
        self.copies["stock"].query("ALTER SUBSCRIPTION stock DISABLE")
        gone = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'logical replication worker'"
        wait_until("the apply worker to end", lambda: self.copies["stock"].value(gone) == "0", 60)
        active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'stock' AND active"
        wait_until("the walsender to end", lambda: self.sql.value(active) == "0", 60)

    def catch_up(self, side, until, marker, *more):
        """From nobody following until everything is visible and durable, in seconds: wall and CPU."""
        sampler = Sampler(self)
        try:
            began, visible, ours = time.monotonic(), None, None
            if side == "ours":
                ours = Ours(self, "--until", until, *more)
            else:
                self.enable()
            done = ours.ended if ours else lambda: self.confirmed(until)
            while True:
                if visible is None and self.visible(side, marker):
                    visible = time.monotonic() - began
                if done():
                    break
                waited = time.monotonic() - began
                if waited > self.patience or (visible is not None and waited > visible + self.settling):
                    state = ours.status() if ours else self.sql.query("SELECT * FROM pg_replication_slots")
                    backup = self.copies[side].query("SELECT pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()")
                    state = f"{state}, WAL of the backup inserted and flushed: {backup}"
                    raise Failed(f"{side} {' '.join(map(str, more))} is not done with {until} after {waited:.0f} s (visible: {visible is not None}): {state}")
                time.sleep(POLL_EVERY)
            wall = time.monotonic() - began
            if visible is None:
                if not self.visible(side, marker):
                    raise Failed(f"{side} says that {until} is visible, and it is not")
                visible = wall
        finally:
            used = sampler.stop()
            if side == "stock":
                self.disable()
            elif ours and ours.process.returncode is None:
                end(ours.process, signal.SIGINT, 10)
        used["process"] = ours.cpu if ours else 0.0
        return {"wall": wall, "visible": visible, "cpu": sum(used.values()), **used}

    def floor(self, until):
        """The same backlog decoded, sent and thrown away: what following costs without applying."""
        self.sql.query("SELECT pg_copy_logical_replication_slot('stock', 'floor')")
        sampler, began = Sampler(self), time.monotonic()
        try:
            self.program(
                "pg_recvlogical", "--slot", "floor", "--start", "--no-loop", "--file", "/dev/null", "--endpos", until,
                "-o", "proto_version=1", "-o", "publication_names=stock", "--dbname", self.primary.url("bench"),
            )  # fmt: skip
            return {"wall": time.monotonic() - began, "walsender": sampler.stop()["walsender"]}
        finally:
            wait_until("the floor's walsender to end", lambda: self.sql.value("SELECT active FROM pg_replication_slots WHERE slot_name = 'floor'") == "f", 60)
            self.sql.query("SELECT pg_drop_replication_slot('floor')")

    def even(self):
        """Both up to now, not measured."""
        until, marker = self.mark()
        for side in ("ours", "stock"):
            self.catch_up(side, until, marker)


# --- The figures. Each gives the rows of the summary (what, ours, stock, stock ÷ ours), and its text.


def in_turn(turn):
    return ("ours", "stock") if turn % 2 == 0 else ("stock", "ours")


def ratios(runs, what):
    return [stock[what] / max(ours[what], 0.001) for ours, stock in zip(runs["ours"], runs["stock"])]


def column(runs, what, digits=2):
    return middle([run[what] for run in runs], digits)


def say(row):
    print(row, flush=True)
    return row


def both_catch_up(stage, name, transactions, turn, reader=None):
    """A backlog, and both sides in turn. With a reader: a transaction that has looked at that table, open meanwhile."""
    tables = WORKLOADS[name][2]
    stage.tidy(tables)
    rate, until, marker = stage.work(name, transactions)
    result = {"rate": rate, "floor": stage.floor(until)}
    for side in in_turn(turn):
        with Session(stage.backup.port, side) as session:
            if reader:
                session.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
                before = session.query(f"SELECT * FROM {reader}")
            result[side] = stage.catch_up(side, until, marker)
            if reader and session.query(f"SELECT * FROM {reader}") != before:
                raise Failed(f"{side} changed what a REPEATABLE READ transaction reads")
    stage.check([*tables, "marker"])
    return result


def catch_up(stage, options):
    most = 2_500 if options.quick else options.transactions
    summary, walls, cpus, shares = [], [], [], {"floor": [], "walsender": [], "sender": [], "apply": []}
    for index, name in enumerate(WORKLOADS):
        transactions = most * SHARES.get(name, 100) // 100
        runs = {"ours": [], "stock": [], "rate": [], "floor": []}
        for turn in range(options.rounds):
            for key, value in both_catch_up(stage, name, transactions, turn + index).items():
                runs[key].append(value)
        wall, visible, cpu = (middle(ratios(runs, what)) for what in ("wall", "visible", "cpu"))
        summary.append((f"catch-up, {name}: s", column(runs["ours"], "wall"), column(runs["stock"], "wall"), wall))
        summary.append((f"catch-up, {name}: CPU s", column(runs["ours"], "cpu"), column(runs["stock"], "cpu"), cpu))
        rate = {side: middle([transactions / run["wall"] for run in runs[side]], 0) for side in ("ours", "stock")}
        walls.append(
            say(
                f"| {name} | {transactions:,} | {statistics.median(runs['rate']):,.0f} | {column(runs['floor'], 'wall')} | {column(runs['ours'], 'wall')} | {column(runs['stock'], 'wall')} | "
                f"{rate['ours']} | {rate['stock']} | {wall} | {column(runs['ours'], 'visible')} | {column(runs['stock'], 'visible')} | {visible} |"
            )
        )
        spent = {(side, what): statistics.median(run[what] for run in runs[side]) for side, what in [*CPU_COLUMNS, ("ours", "cpu"), ("ours", "wall")]}
        shares["floor"].append(statistics.median(run["wall"] for run in runs["floor"]) / spent["ours", "wall"])
        shares["walsender"].append(spent["ours", "walsender"] / spent["ours", "cpu"])
        shares["sender"].append(spent["ours", "walsender"] / spent["stock", "walsender"])
        shares["apply"].append(spent["stock", "applier"] / (spent["ours", "applier"] + spent["ours", "process"]))
        parts = [column(runs[side], what) for side, what in CPU_COLUMNS]
        parts.insert(0, column(runs["floor"], "walsender"))
        cpus.append(say(f"| {name} | {' | '.join(parts)} | {column(runs['ours'], 'cpu')} | {column(runs['stock'], 'cpu')} | {cpu} |"))
    return summary, f"""## Catching up

A backlog from 2 clients while nobody followed; then both sides caught up, one after the other. From the start of `hindcast standby --until` to its end, from
`ALTER SUBSCRIPTION … ENABLE` to `confirmed_flush_lsn`: everything visible and durable. The last columns are until the last row is visible only, seen by polling in both.
The floor is `pg_recvlogical` that throws the same backlog away: decoding, sending and reading without applying. Whoever applies can be a little faster than it, as its own reading costs something too.
The start is counted: of a process with its checks and connections here, of a worker there. Tables were compared with the primary's after each (count and hash).

| workload | transactions | on the primary, transactions/s | floor, s | ours, s | stock, s | ours, transactions/s | stock, transactions/s | time, stock ÷ ours | ours, until visible, s | stock, until visible, s | until visible, stock ÷ ours |
|---|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(walls)}

CPU seconds of the same.

| workload | floor, walsender | ours, walsender | ours, sessions on the backup | hindcast | stock, walsender | stock, apply worker | ours, all | stock, all | all, stock ÷ ours |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(cpus)}

Where the time goes: {where_it_goes(shares)}
"""


def where_it_goes(shares):
    """Medians of the workloads and their range."""
    return (
        f"reading and throwing away alone takes {middle(shares['floor'])} of the time hindcast takes, start and end included, and the walsender's CPU is {middle(shares['walsender'])} of all of ours, "
        f"{middle(shares['sender'])} times what it is with stock. Applying by itself, hindcast and its sessions, takes {middle(shares['apply'])} times less CPU than stock's apply worker."
    )


CPU_COLUMNS = [("ours", "walsender"), ("ours", "applier"), ("ours", "process"), ("stock", "walsender"), ("stock", "applier")]


def reader(stage, options):
    name = "adversarial, n = 1"
    sizes = [1_000, 2_000, 4_000] if options.quick else [10_000, 20_000, 40_000]
    summary, rows, medians = [], [], []
    for index, transactions in enumerate(sizes):
        runs = {"ours": [], "stock": [], "rate": [], "floor": []}
        for turn in range(options.rounds):
            for key, value in both_catch_up(stage, name, transactions, turn + index, reader="hot").items():
                runs[key].append(value)
        medians.append({side: statistics.median(run["wall"] for run in runs[side]) for side in ("ours", "stock")})
        added = {side: "" for side in medians[0]}
        if index:
            more = transactions - sizes[index - 1]
            added = {side: f"{(medians[index][side] - medians[index - 1][side]) / more * 1e6:,.0f}" for side in added}
        ratio = middle(ratios(runs, "wall"))
        summary.append((f"catch-up under an open snapshot, {transactions:,}: s", column(runs["ours"], "wall"), column(runs["stock"], "wall"), ratio))
        rows.append(
            say(
                f"| {transactions:,} | {column(runs['ours'], 'wall')} | {column(runs['stock'], 'wall')} | {added['ours']} | {added['stock']} | "
                f"{ratio} | {column(runs['ours'], 'cpu')} | {column(runs['stock'], 'cpu')} | {middle(ratios(runs, 'cpu'))} |"
            )
        )
    return summary, f"""## Catching up while a reader keeps its snapshot

{name}, with a `REPEATABLE READ` transaction open on the backup that has read the hot row: no version of it can be removed. It is linear where a transaction more than in the row above
takes as long from row to row; where that doubles, it is quadratic.

| transactions | ours, s | stock, s | ours, µs per transaction more | stock, µs per transaction more | time, stock ÷ ours | ours, CPU s | stock, CPU s | CPU, stock ÷ ours |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


class Probe:
    """Commits a row every 20 ms on the primary, and sees when it is visible on the backup."""

    def __init__(self, stage, side):
        self.lags, self.error, self.sent, self.seen = [], None, 0, 0
        self.source, self.copy = Session(stage.primary.port, "bench"), Session(stage.backup.port, side)
        self.sending, self.watching = threading.Event(), threading.Event()
        self.first = self.seen = int(self.source.value("SELECT coalesce(max(n), 0) FROM probe"))
        self.sent = self.first
        self.threads = [threading.Thread(target=self.guarded, args=(what,), daemon=True) for what in (self.send, self.watch)]
        for thread in self.threads:
            thread.start()

    def guarded(self, what):
        try:
            what()
        except (Failed, OSError) as error:
            self.error = error

    def send(self):
        due = time.monotonic()
        while not self.sending.is_set():
            self.source.query(f"INSERT INTO probe VALUES ({self.sent + 1}, clock_timestamp())")
            self.sent += 1
            due += PROBE_EVERY
            time.sleep(max(0.0, due - time.monotonic()))

    def watch(self):
        while not self.watching.wait(0.002):
            for n, at in self.copy.query(f"SELECT n, extract(epoch FROM at) FROM probe WHERE n > {self.seen} ORDER BY n"):
                if int(n) != self.seen + 1:
                    raise Failed(f"row {n} was visible before row {self.seen + 1}")
                self.seen = int(n)
                self.lags.append((time.time() - float(at)) * 1e3)

    def stop(self, patience):
        try:
            self.sending.set()
            self.threads[0].join()
            wait_until("the last probe", lambda: self.error or self.seen >= self.sent, patience)
            if self.error:
                raise Failed(f"probe: {self.error}")
        finally:
            self.watching.set()
            self.threads[1].join()
            self.source.close()
            self.copy.close()
        return self.lags


def live(stage, options):
    seconds = 2 if options.quick else options.live_seconds
    clients = ["-c", 2, "-j", 1, "-M", "prepared", "-b", "tpcb-like"]
    most = stage.tps(stage.pgbench(stage.primary, "bench", *clients, "-T", 2 if options.quick else 15))
    rate = most * 0.8
    say(f"at most {most:,.0f} transactions/s, driven at {rate:,.0f}")

    def one(side, readers):
        """Follows first, then load."""
        stage.tidy([*PGBENCH, "probe"])
        stage.catch_up(side, *stage.mark())
        ours, children = None, []
        _, marker = stage.mark()
        try:
            if side == "ours":
                ours = Ours(stage)
            else:
                stage.enable()
            wait_until("it to follow", lambda: stage.visible(side, marker) and not (ours and ours.ended()), stage.patience)
            reading = stage.pgbench(stage.backup, side, "-S", "-M", "prepared", "-c", readers, "-j", 1, "-T", seconds) if readers else None
            sampler, before = Sampler(stage, every=0.2), cpu_seconds(ours.process.pid) if ours else 0.0
            probe = Probe(stage, side)
            try:
                writing = stage.pgbench(stage.primary, "bench", *clients, "-T", seconds, "--rate", f"{rate:.0f}")
                children = [child for child in (reading, writing) if child]
                written = stage.tps(writing)
                read = stage.tps(reading) if reading else 0.0
            finally:
                used = sampler.stop()
                used["process"] = cpu_seconds(ours.process.pid) - before if ours and not ours.ended() else 0.0
                lags = probe.stop(stage.patience)
        finally:
            for child in children:
                end(child, signal.SIGINT, 5)
            if ours:
                ours.stop()
            else:
                stage.disable()
        half = len(lags) // 2
        early, late = statistics.median(lags[:half]), statistics.median(lags[half:])
        return {
            "p50": statistics.median(lags), "p99": percentile(lags, 0.99), "max": max(lags), "early": early, "late": late,
            "slope": (late - early) / (seconds / 2), "written": written, "read": read, "cores": sum(used.values()) / seconds,
        }  # fmt: skip

    summary, rows = [], []
    # A minute has thousands of samples: one round.
    for readers in (0, 4, 16):
        runs = {"ours": [], "stock": []}
        for turn in range(1):
            for side in in_turn(turn + readers // 4):
                runs[side].append(one(side, readers))
        # Nobody follows: what came meanwhile is caught up before it is compared.
        stage.even()
        stage.check([*PGBENCH, "probe", "marker"])
        for side in ("ours", "stock"):
            of = runs[side]
            rows.append(
                say(
                    f"| {side} | {readers} | {column(of, 'p50', 1)} | {column(of, 'p99', 1)} | {column(of, 'max', 0)} | {column(of, 'early', 1)} | {column(of, 'late', 1)} | "
                    f"{column(of, 'slope', 1)} | {column(of, 'written', 0)} | {column(of, 'read', 0)} | {column(of, 'cores')} |"
                )
            )
        for what in ("p50", "p99"):
            summary.append((f"lag {what}, {readers} readers: ms", column(runs["ours"], what, 1), column(runs["stock"], what, 1), middle(ratios(runs, what))))
    return summary, f"""## Lag under load

pgbench's TPC-B (2 clients) at 80 % of what the primary did with nobody following ({most:,.0f}/s, so {rate:,.0f}/s) for {seconds:g} s. Every {PROBE_EVERY * 1e3:.0f} ms a row with its time is committed on the primary; the lag is
until a poller (every 2 ms) sees it on the backup, by one clock. One round. Readers are clients of `pgbench -S` on the backup, as fast as they can; everything shares the machine's cores. Growth is from the median of the first
half to that of the second, per second: where it is not about zero, the standby falls behind for good. CPU is that of walsender, sessions or apply worker on the backup, and hindcast.

| | readers | lag p50, ms | p99, ms | most, ms | first half, p50, ms | second half, p50, ms | growth, ms/s | written, transactions/s | read, transactions/s | CPU, cores |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def granularity(stage, options):
    name, transactions = "adversarial, n = 4", 2_500 if options.quick else options.transactions // 2
    variants = [(what, workers) for what in ("row", "single") for workers in ((1,) if what == "single" else (1, 2))]
    runs, failed = {variant: [] for variant in variants}, {}
    for turn in range(options.rounds):
        shift = turn % len(variants)
        for what, workers in variants[shift:] + variants[:shift]:
            if (what, workers) in failed:
                continue
            stage.tidy(WORKLOADS[name][2])
            _, until, marker = stage.work(name, transactions)
            try:
                runs[what, workers].append(stage.catch_up("ours", until, marker, "--granularity", what, "--workers", workers))
            except Failed as error:
                # Once is enough; the others start where it should have come to.
                failed[what, workers] = error
                print(error, file=sys.stderr, flush=True)
                stage.catch_up("ours", *stage.mark())
            stage.check([*WORKLOADS[name][2], "marker"], sides=("ours",))
    if ("row", 1) in failed:
        raise failed["row", 1]
    base = statistics.median(run["wall"] for run in runs["row", 1])
    rows, summary = [], []
    for (what, workers), of in runs.items():
        if (what, workers) in failed:
            rows.append(say(f"| {what} | {workers} | failed | | | |"))
            continue
        ratio = statistics.median(run["wall"] for run in of) / base
        rate = middle([transactions / run["wall"] for run in of], 0)
        rows.append(say(f"| {what} | {workers} | {column(of, 'wall')} | {rate} | {ratio:.2f} | {column(of, 'cpu')} |"))
        if (what, workers) != ("row", 1):
            summary.append((f"catch-up with {what}, {workers} {'worker' if workers == 1 else 'workers'} ÷ row, 1 worker: time", f"{ratio:.2f}", "", ""))
    return summary, f"""## What is applied as one

{transactions:,} transactions, {name}; hindcast with `--granularity` and `--workers`.

| granularity | workers | s | transactions/s | time ÷ row, 1 worker | CPU s |
|---|---|---|---|---|---|
{chr(10).join(rows)}
{"".join(f"{chr(10)}{what}, {workers} workers: `{error}`{chr(10)}" for (what, workers), error in failed.items())}"""


def store(options):
    program = options.throughput
    if not program:
        command = ["cargo", "build", "--release", "--locked", "-p", "hindcast-store", "--example", "throughput"]
        built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if built.returncode:
            raise Failed(f"{' '.join(command)}: {built.stderr[-800:]}")
        program = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "throughput"
    size = 400_000 if options.quick else 2_000_000
    modes = ["row", "transaction", "single"]
    loads = [["insert-only"], *(["adversarial", str(n)] for n in (1, 4, 16, 64, 128))]
    summary = []

    def measured(*arguments):
        done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"throughput: {done.stderr[-800:]}")
        return json.loads(done.stdout)

    def curve(what, unit, digits, rounds, *more):
        rows, first = [], {}
        for load in loads:
            rates, per_core = {mode: [] for mode in modes}, []
            for turn in range(rounds):
                for mode in modes if turn % 2 == 0 else reversed(modes):
                    run = measured(*load, "--mode", mode, *more)
                    rates[mode].append(run["rows_per_second"] / unit)
                    if mode == "row":
                        per_core.append(run["rows_per_cpu_second"] / unit)
            medians = {mode: statistics.median(rates[mode]) for mode in modes}
            first = first or medians
            relative = [f"{medians[mode] / first[mode]:.2f}" for mode in modes]
            core = middle(per_core, digits)
            rows.append(say(f"| {' '.join(load)} | {' | '.join(middle(rates[mode], digits) for mode in modes)} | {' | '.join(relative)} | {core} |"))
            ratio = medians["row"] / medians["transaction"]
            summary.append((f"store, {what}{' '.join(load)}: by row ÷ by transaction, rows/s", f"{ratio:.2f}", "", ""))
        return chr(10).join(rows)

    memory = curve("", 1e6, 2, options.rounds, "--rows", size)
    scheduler = [measured("scheduler", "--rows", size)["rows_per_cpu_second"] / 1e6 for _ in range(options.rounds)]
    summary.append(("store, scheduler alone: M rows per CPU second", say(middle(scheduler)), "", ""))
    slow_size = 4_000 if options.quick else 20_000
    slow = curve("slow writes, ", 1e3, 1, 1, "--workers", 16, "--write-us", 50, "--segment-kib", 8, "--rows", slow_size)
    columns = "by row, rows/s | by transaction | single | by row, relative | by transaction, relative | single, relative | by row, rows per CPU second"
    return summary, f"""## The store in memory

C5's synthetic workloads on the in-memory store, without Postgres: a log of {size:,} writes that is in memory already, until the last commit is visible; 2 workers. Relative is to the same mode's insert-only.
Rates are in millions. The scheduler alone, its segments thrown away: {middle(scheduler)} million rows per CPU second.

| workload | {columns} |
|---|---|---|---|---|---|---|---|
{memory}

Two cores have no room for the parallelism that the modes differ in. So the same with 16 workers and writes that take 50 µs each asleep, which need no core: {slow_size:,} writes, segments of 8 KiB; rates
in thousands, one round. What counts is how a mode's rate changes from row to row of the table.

| workload | {columns} |
|---|---|---|---|---|---|---|---|
{slow}
"""


# At least so many times stock's speed was aimed at.
AIMS = {
    "catch-up, single-row updates: s": 2.0,
    "catch-up, single-row inserts: s": 1.3,
    "catch-up, Zipf updates: s": 2.0,
    "catch-up, adversarial, n = 1: s": 2.0,
    "catch-up under an open snapshot, 40,000: s": 10.0,
}


def verdict(summary):
    """The aims that were met and those that were not."""
    found = {what: float(ratio.split()[0].replace(",", "")) for what, _, _, ratio in summary if what in AIMS}
    lines = {True: [], False: []}
    for what, ratio in found.items():
        lines[ratio >= AIMS[what]].append(f"{what.removesuffix(': s')} {ratio:.2f} (aim {AIMS[what]:g})")
    said = [f"{word}: {'; '.join(lines[met])}." for met, word in ((True, "**Met**"), (False, "**Missed**")) if lines[met]]
    return "Time, stock ÷ ours. " + " ".join(said) if said else ""


@contextlib.contextmanager
def stopping():
    """What fails outside the parts ends the program."""
    try:
        yield
    except Failed as error:
        raise SystemExit(f"Error: {error}") from None


def standby(options):
    """The text of docs/results/standby.md."""
    parts = options.parts or PARTS
    summary, texts = [], []

    def part(name, measure):
        if name not in parts:
            return
        say(f"-- {name}")
        began = time.monotonic()
        try:
            more, text = measure()
        except (Failed, OSError) as error:
            # The others are measured all the same.
            more, text = [(f"{name}: not measured, see below", "", "", "")], f"## {name}: not measured\n\n```\n{error}\n```\n"
            print(text, file=sys.stderr, flush=True)
        say(f"-- {name}: {time.monotonic() - began:.0f} s")
        summary.extend(more)
        texts.append(text)

    if set(parts) - {"store"}:
        with stopping(), Stage(options) as stage:
            for name, measure in (("catch-up", catch_up), ("reader", reader), ("live", live), ("granularity", granularity)):

                def measured(measure=measure):
                    # One that failed may have left a side behind.
                    stage.even()
                    return measure(stage, options)

                part(name, measured)
    part("store", lambda: store(options))
    rows = [f"| {' | '.join(row)} |" for row in summary]
    quick = "**Made with --quick: these figures say that the program runs, nothing else.**\n\n" if options.quick else ""
    return f"""# The standby

{quick}`hindcast standby` against Postgres' own logical replication (*stock*), a publication and a subscription with their defaults. Primary and backup are two private clusters on one machine; each side has a
database of its own on the backup, and one is stopped while the other is measured. Medians and range of {options.rounds} {"round" if options.rounds == 1 else "rounds"}, in which they took turns in going first; a ratio is that of each round.
Above 1 is in favour of hindcast. Tables of the backup were vacuumed and analysed before each measurement (not with --quick).

| | ours | stock | stock ÷ ours |
|---|---|---|---|
{chr(10).join(rows)}

{"" if options.quick else verdict(summary)}

{chr(10).join(texts)}"""


def footer(options):
    words = ["bench/figures standby", f"--rounds {options.rounds}"]
    words += ["--quick"] if options.quick else [f"--transactions {options.transactions} --live-seconds {options.live_seconds:g}"]
    words += [f"--part {name}" for name in options.parts or ()]
    return (
        f"\nMade with `{' '.join(words)}` on {time.strftime('%Y-%m-%d')}: {machine(SETTINGS)}, shared and noisy; "
        "ratios within one run count, single times do not.\n"
    )
