"""Things that are made by who needs them first. It looks after its tables when it starts, as services with migrations do.

    things.py PORT        the database is in DATABASE_URL

PUT /NAME/MAKER makes a thing unless it is there, in a statement of its own. POST does so in a transaction, and looks at it. Answers say
whether it was made, and by which maker.
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
MAKE = "INSERT INTO thing VALUES (%s, %s) ON CONFLICT DO NOTHING"


def connect():
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def migrate():
    with connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS thing (name text PRIMARY KEY, maker text NOT NULL)")
        connection.execute("CREATE INDEX IF NOT EXISTS thing_maker ON thing (maker)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS try (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number serial, name text, maker text, "
            "at timestamptz DEFAULT CURRENT_TIMESTAMP, day date DEFAULT CURRENT_DATE)"
        )
        # As tools do that make the tables which are not there.
        with connection.transaction():
            there = connection.execute("SELECT relname FROM pg_catalog.pg_class WHERE relname = 'maker'")
            if there.fetchone() is None:
                connection.execute("CREATE TABLE maker (name text PRIMARY KEY)")
        with connection.transaction():
            if connection.execute("SELECT name FROM maker").fetchone() is None:
                connection.execute("INSERT INTO maker VALUES ('nobody')")
        if connection.execute("UPDATE migrating SET now = true WHERE NOT now").rowcount != 1:
            raise SystemExit("somebody else migrates")
        with connection.transaction():
            connection.execute(MAKE, ("first", "nobody"))
            connection.execute("UPDATE migrating SET now = false")


def connected(work):
    try:
        connection = pool.get_nowait()
    except queue.Empty:
        connection = connect()
    try:
        return work(connection)
    finally:
        pool.put(connection)


def make(connection, path):
    # Nobody is shown the numbers of these.
    connection.execute("INSERT INTO try (name, maker) VALUES (%s, %s)", path.split("/")[1:])
    return connection.execute(MAKE, path.split("/")[1:]).rowcount


def make_and_look(connection, path):
    # A number that is taken and not used.
    with connection.transaction(force_rollback=True):
        make(connection, path)
    with connection.transaction():
        made = make(connection, path)
        # Others come in between.
        time.sleep(0.004)
        return [made, connection.execute("SELECT maker FROM thing WHERE name = %s", (path.split("/")[1],)).fetchone()[0]]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        self.answer(connected(lambda c: make(c, self.path)))

    def do_POST(self):
        self.answer(connected(lambda c: make_and_look(c, self.path)))

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


migrate()
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
