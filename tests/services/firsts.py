"""Things that many want to make at a time, and whose makers find out by an error that they were not the first.

    firsts.py PORT        the database is in DATABASE_URL

POST /NAME/MAKER makes a thing in a savepoint, as Django's get_or_create and Rails' create_or_find_by. PUT does so without one, and begins
again where it fails. PATCH makes two in a statement, as far as they are not there. Each answers what it sees of things then, or what it made.
COPY makes one so, and MOVE gives a thing to another maker, and takes its time.
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
MAKE = "INSERT INTO thing (name, maker) VALUES (%s, %s) RETURNING id"
MAKE_TWO = "INSERT INTO thing (name, maker) VALUES (%s, %s), (%s, %s) ON CONFLICT DO NOTHING"
MAKE_ONE = "INSERT INTO thing (name, maker) VALUES (%s, %s) ON CONFLICT DO NOTHING"
# What else it sees tells when it looked.
LOOK = "SELECT id, maker, (SELECT sum(id) FROM thing) FROM thing WHERE name = %s"


def connected(work):
    try:
        connection = pool.get_nowait()
    except queue.Empty:
        connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=None)
    try:
        return work(connection)
    finally:
        pool.put(connection)


def look(connection, name):
    return connection.execute(LOOK, (name,)).fetchone()


def in_a_savepoint(connection, name, maker):
    with connection.transaction():
        connection.execute("UPDATE maker SET tries = tries + 1 WHERE name = %s", (maker,))
        try:
            with connection.transaction():
                return connection.execute(MAKE, (name, maker)).fetchone()
        except psycopg.errors.UniqueViolation:
            # Others come in between.
            time.sleep(0.002)
            return look(connection, name)


def again(connection, name, maker):
    try:
        with connection.transaction():
            connection.execute("UPDATE maker SET tries = tries + 1 WHERE name = %s", (maker,))
            return connection.execute(MAKE, (name, maker)).fetchone()
    except psycopg.errors.UniqueViolation:
        return look(connection, name)


def two(connection, name, maker):
    with connection.transaction():
        made = connection.execute(MAKE_TWO, (name, maker, name + "-too", maker)).rowcount
        return [made, look(connection, name)]


def one(connection, name, maker):
    with connection.transaction():
        made = connection.execute(MAKE_ONE, (name, maker)).rowcount
        time.sleep(0.002)
        return [made, look(connection, name)]


def move(connection, name, maker):
    with connection.transaction():
        moved = connection.execute("UPDATE thing SET maker = %s WHERE name = %s", (maker, name)).rowcount
        time.sleep(0.004)
        return moved


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.answer(in_a_savepoint)

    def do_PUT(self):
        self.answer(again)

    def do_PATCH(self):
        self.answer(two)

    def do_COPY(self):
        self.answer(one)

    def do_MOVE(self):
        self.answer(move)

    def answer(self, work):
        name, maker = self.path.split("/")[1:]
        body = json.dumps(connected(lambda connection: work(connection, name, maker)), default=int).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
