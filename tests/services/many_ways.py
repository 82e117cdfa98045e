"""The ways in which requests get in each other's way in a database, under READ COMMITTED.

    many_ways.py PORT        the database is in DATABASE_URL, with what `schema` in this file makes

POST /WAY/SEED does one of them, with what SEED draws, and tries once more what a deadlock or a lock has made to fail. Answers
say what it saw.
"""

import http.server
import json
import os
import queue
import random
import socketserver
import sys

import psycopg
from psycopg import errors

pool = queue.LifoQueue()
ACCOUNTS = range(1, 6)


def rows(c, *statement):
    return c.execute(*statement).fetchall()


def transfer(c, draw):
    one, other = draw.sample(ACCOUNTS, 2)
    first = rows(c, "UPDATE account SET n = n - 3 WHERE id = %s RETURNING n", (one,))
    c.execute("SELECT pg_sleep(0.003)")
    return [first, rows(c, "UPDATE account SET n = n + 3 WHERE id = %s RETURNING n", (other,))]


def lock(c, draw):
    account = (draw.choice(ACCOUNTS),)
    seen = rows(c, "SELECT n FROM account WHERE id = %s FOR UPDATE", account)
    c.execute("SELECT pg_sleep(0.003)")
    return [seen, rows(c, "UPDATE account SET n = n + 1 WHERE id = %s RETURNING n", account)]


def refuse(c, draw):
    with c.transaction(force_rollback=True):
        return rows(c, "SELECT n FROM account WHERE id = %s FOR UPDATE", (draw.choice(ACCOUNTS),))


def lock_lowest(c, draw):
    lowest = rows(c, "SELECT id, n FROM account ORDER BY n, id LIMIT 1 FOR UPDATE")
    return [lowest, rows(c, "UPDATE account SET n = n + 2 WHERE id = %s RETURNING n", lowest[0][:1])]


def lock_joined(c, draw):
    account = (draw.choice(ACCOUNTS),)
    seen = rows(c, "SELECT a.n, e.nth FROM account a JOIN entry e ON e.account = a.id WHERE a.id = %s ORDER BY e.nth DESC LIMIT 2 FOR UPDATE OF a", account)
    nth = rows(c, "INSERT INTO entry VALUES (%s, (SELECT count(*) FROM entry WHERE account = %s)) RETURNING nth", account * 2)
    return [seen, nth, rows(c, "UPDATE account SET n = n + 1 WHERE id = %s RETURNING n", account)]


def condition(c, draw):
    return sorted(rows(c, "UPDATE account SET n = n - 40 WHERE n >= 60 RETURNING id, n"))


def take(c, draw):
    free = rows(c, "SELECT id FROM job WHERE NOT done ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
    c.execute("SELECT pg_sleep(0.002)")
    return [free, free and rows(c, "UPDATE job SET done = true WHERE id = %s RETURNING id", free[0])]


def take_at_once(c, draw):
    return rows(c, "UPDATE job SET done = true WHERE id = (SELECT id FROM job WHERE NOT done ORDER BY id DESC LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id")


def busy(c, draw):
    seen = rows(c, "SELECT n FROM account WHERE id = 1 FOR UPDATE NOWAIT")
    c.execute("SELECT pg_sleep(0.004)")
    return seen


def turn(c, draw):
    c.execute("SELECT pg_advisory_xact_lock(7)")
    nth = rows(c, "SELECT coalesce(max(nth), 0) + 1 FROM entry WHERE account = 7")[0]
    c.execute("INSERT INTO entry VALUES (7, %s)", nth)
    return nth


def turn_tried(c, draw):
    has = rows(c, "SELECT pg_try_advisory_xact_lock(8)")
    c.execute("SELECT pg_sleep(0.003)")
    return [has, has[0][0] and rows(c, "INSERT INTO entry SELECT 8, count(*) FROM entry WHERE account = 8 RETURNING nth")]


def alone(c, draw):
    c.execute("LOCK TABLE job IN SHARE ROW EXCLUSIVE MODE")
    return rows(c, "INSERT INTO job SELECT max(id) + 1, false FROM job RETURNING id")


def upsert(c, draw):
    return rows(c, "INSERT INTO word VALUES (%s, 1) ON CONFLICT (k) DO UPDATE SET n = word.n + excluded.n RETURNING n", (draw.randint(1, 4),))


def forget(c, draw):
    return rows(c, "DELETE FROM word WHERE k = %s RETURNING n", (draw.randint(1, 4),))


def get_or_create(c, draw):
    key = (draw.randint(100, 130),)
    found = rows(c, "SELECT n FROM word WHERE k = %s", key)
    try:
        with c.transaction():
            return found or rows(c, "INSERT INTO word VALUES (%s, 1) RETURNING n", key)
    except errors.UniqueViolation:
        return ["lost", rows(c, "SELECT n FROM word WHERE k = %s", key)]


def count(c, draw):
    return rows(c, "UPDATE account a SET n = a.n + s.n FROM (SELECT account, count(*) n FROM entry GROUP BY account) s WHERE s.account = a.id AND a.id = %s RETURNING a.n, s.n", (draw.choice(ACCOUNTS),))


def move(c, draw):
    return rows(c, "WITH gone AS (DELETE FROM entry e WHERE nth < (SELECT max(nth) - 5 FROM entry l WHERE l.account = e.account) RETURNING account) SELECT count(*) FROM gone")


def two(c, draw):
    account = draw.choice(ACCOUNTS)
    cursor = c.execute(f"UPDATE account SET n = n + 1 WHERE id = {account}; UPDATE account SET seen = (SELECT count(*) FROM entry) WHERE id = {account} RETURNING seen")
    cursor.nextset()
    return cursor.fetchall()


def trigger(c, draw):
    return rows(c, "INSERT INTO event (account) VALUES (%s) RETURNING n", (draw.choice(ACCOUNTS),))


def function(c, draw):
    return rows(c, "SELECT bump(%s)", (draw.choice(ACCOUNTS),))


def look(c, draw):
    return [rows(c, "SELECT sum(n), count(*) FROM account"), rows(c, "SELECT account, count(*) FROM entry GROUP BY account"), rows(c, "SELECT * FROM word LIMIT 5")]


def export(c, draw):
    with c.cursor().copy("COPY (SELECT account, count(*) FROM entry GROUP BY account ORDER BY account) TO STDOUT") as copy:
        return b"".join(bytes(part) for part in copy).decode()


def refresh(c, draw):
    c.execute("REFRESH MATERIALIZED VIEW entries")
    return rows(c, "SELECT * FROM entries ORDER BY account")


def tell(c, draw):
    c.execute("NOTIFY told, 'something'")
    return "told"


def repeat(c, draw):
    c.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    account = (draw.choice(ACCOUNTS),)
    seen = rows(c, "SELECT n FROM account WHERE id = %s", account)
    return rows(c, "UPDATE account SET n = %s WHERE id = %s RETURNING n", (seen[0][0] + 2, *account))


WAYS = {way.__name__: way for way in [
    transfer, lock, refuse, lock_lowest, lock_joined, condition, take, take_at_once, busy, turn, turn_tried, alone, upsert, forget, get_or_create, count, move, two,
    trigger, function, look, export, refresh, tell, repeat,
]}
# These are statements of their own.
SINGLE = {refuse, condition, take_at_once, upsert, forget, count, move, two, trigger, function, look, export, tell}


def act(connection, way, seed):
    for attempt in range(2):
        draw = random.Random(seed)
        try:
            if way in SINGLE:
                return [attempt, way(connection, draw)]
            with connection.transaction():
                return [attempt, way(connection, draw)]
        except (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable) as error:
            failed = type(error).__name__
    return [attempt, failed]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        _, way, seed = self.path.split("/")
        try:
            connection = pool.get_nowait()
        except queue.Empty:
            connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=2)
        try:
            answer = act(connection, WAYS[way], seed)
        finally:
            pool.put(connection)
        body = json.dumps(answer, default=str).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
