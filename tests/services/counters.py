"""Counters, under READ COMMITTED as services have it by default: each statement sees what was committed when it began, and one that
finds a row being changed waits, and goes on with it as it has become.

    counters.py PORT        the database is in DATABASE_URL

POST /N adds one to counter N between two looks at all of them. PUT /N adds one in a statement of its own. GET / looks twice, as does
OPTIONS /, which rolls back. PATCH /N locks counter N, which stays as it is, and appends an entry to it; DELETE /N refers to it, and waits for
those that lock it. LINK /N refers to it and has counter N count all that do, UNLINK /N counts them in a statement of its own, BOTH /N
does the two in one text. MOVE /N locks counter
N and then the other one of 0 and 1, which ends in a deadlock where both come at a time; it says whether it was made to fail. VIEW / says in
which order the counters lie, BROWSE / by a cursor that outlives its transaction. RAISE / locks the lowest counter and adds one to it, NOTE /N has a trigger do so with N. TURN /N
takes an advisory lock and appends an entry to counter N, TAKE / adds one to the first counter that nobody has locked. Answers say what each statement saw.
"""

import http.server
import json
import os
import queue
import socketserver
import sys
import time

import psycopg

pool = queue.LifoQueue()
CHANGED = "CHANGED" in os.environ
SUM = "SELECT sum(n)::int FROM counter"
ADD = "UPDATE counter SET n = n + 1 WHERE id = %s RETURNING n"
ENTRIES = f"SELECT count({'number' if CHANGED else '*'})::int FROM entry WHERE number = %s"

COUNT = "UPDATE counter SET n = (SELECT count(*) FROM reference WHERE number = id) WHERE id = %s RETURNING n"

BOTH = "INSERT INTO reference VALUES ({0}); UPDATE counter SET n = (SELECT count(*) FROM reference WHERE number = {0}) WHERE id = {0} RETURNING n"
LOWEST = "SELECT id FROM counter ORDER BY n, id LIMIT 1 FOR UPDATE"


def connected(work):
    try:
        connection = pool.get_nowait()
    except queue.Empty:
        connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    try:
        return work(connection)
    finally:
        pool.put(connection)


def one(connection, *statement):
    value = connection.execute(*statement).fetchone()[0]
    # Others come in between.
    time.sleep(0.002)
    return value


def add(connection, number):
    with connection.transaction():
        before = one(connection, SUM)
        mine = one(connection, ADD, (number,))
        after = one(connection, SUM)
        connection.execute("INSERT INTO seen (number, n, before, after) VALUES (%s, %s, %s, %s)", (number, mine, before, after))
    return [before, mine, after]


LOCK = "SELECT n FROM counter WHERE id = %s FOR UPDATE"
TURN = "SELECT pg_advisory_xact_lock(%s)"
FREE = "SELECT id FROM counter ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"


def append(connection, number, lock):
    with connection.transaction():
        one(connection, lock, (number,))
        if CHANGED:
            one(connection, SUM)
        entries = one(connection, ENTRIES, (number,))
        connection.execute("INSERT INTO entry VALUES (%s, %s)", (number, entries))
    return [0, entries, 0]


def take(connection):
    with connection.transaction():
        free = connection.execute(FREE).fetchone()
        time.sleep(0.002)
        added = one(connection, ADD, free) if free else 0
    return [0, added * 10 + (free[0] if free else 9), 0]


def count(connection, number):
    with connection.transaction():
        connection.execute("INSERT INTO reference VALUES (%s)", (number,))
        return [0, one(connection, COUNT, (number,)), 0]


def both(connection, number):
    cursor = connection.execute(BOTH.format(number))
    cursor.nextset()
    return [0, cursor.fetchone()[0], 0]


def refer(connection, number):
    with connection.transaction():
        before = one(connection, SUM)
        connection.execute("INSERT INTO reference VALUES (%s)", (number,))
        after = one(connection, SUM)
    return [before, 0, after]


def move(connection, number):
    try:
        with connection.transaction():
            connection.execute(ADD, (number,))
            # The first to wait is the first to look for a deadlock, and is made to fail.
            time.sleep(0.05 if (number == 0) != CHANGED else 0.15)
            connection.execute(ADD, (1 - number,))
        return [0, 0, 0]
    except psycopg.errors.DeadlockDetected:
        return [0, 1, 0]


def add_to_lowest(connection):
    with connection.transaction():
        lowest = one(connection, LOWEST)
        added = one(connection, ADD, (lowest,))
    return [0, added * 10 + lowest, 0]


def lie(rows):
    return [0, int("1" + "".join(str(row[0]) for row in rows)), 0]


def browse(connection):
    with connection.cursor(name="counters", withhold=True) as cursor:
        cursor.execute("SELECT id FROM counter")
        return lie(cursor)


def look(connection, rolls_back=False):
    with connection.transaction(force_rollback=rolls_back):
        return [one(connection, SUM), 0, one(connection, SUM)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.answer(connected(lambda c: add(c, int(self.path[1:]))))

    def do_PUT(self):
        self.answer(connected(lambda c: [0, one(c, ADD, (int(self.path[1:]),)), 0]))

    def do_PATCH(self):
        self.answer(connected(lambda c: append(c, int(self.path[1:]), LOCK)))

    def do_TURN(self):
        self.answer(connected(lambda c: append(c, int(self.path[1:]), TURN)))

    def do_TAKE(self):
        self.answer(connected(take))

    def do_DELETE(self):
        self.answer(connected(lambda c: refer(c, int(self.path[1:]))))

    def do_LINK(self):
        self.answer(connected(lambda c: count(c, int(self.path[1:]))))

    def do_UNLINK(self):
        self.answer(connected(lambda c: [0, one(c, COUNT, (int(self.path[1:]),)), 0]))

    def do_BOTH(self):
        self.answer(connected(lambda c: both(c, int(self.path[1:]))))

    def do_VIEW(self):
        self.answer(connected(lambda c: lie(c.execute("SELECT id FROM counter"))))

    def do_BROWSE(self):
        self.answer(connected(browse))

    def do_MOVE(self):
        self.answer(connected(lambda c: move(c, int(self.path[1:]))))

    def do_RAISE(self):
        self.answer(connected(add_to_lowest))

    def do_NOTE(self):
        note = "INSERT INTO note (number) VALUES (%s) RETURNING n"
        self.answer(connected(lambda c: [0, one(c, note, (int(self.path[1:]),)), 0]))

    def do_GET(self):
        self.answer(connected(look))

    def do_OPTIONS(self):
        self.answer(connected(lambda c: look(c, rolls_back=True)))

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
