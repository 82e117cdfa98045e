"""Keeps files as large objects of Postgres, which libpq makes, writes and reads by calls of the protocol.

POST /file/NAME keeps the body, and GET gives it back with how many files there are; PUT writes over
the object in place. POST /early/NAME makes the object by the first thing that its transaction does.
DELETE makes one and rolls back.

    python blobs.py PORT        the database is in DATABASE_URL
"""

import http.server
import os
import sys
import threading

import psycopg2

own = threading.local()


def connection():
    if not hasattr(own, "connection"):
        own.connection = psycopg2.connect(os.environ["DATABASE_URL"])
    return own.connection


def make(connected, body):
    made = connected.lobject(0, "wb")
    made.write(body)
    made.close()
    return made.oid


def name_it(cursor, name, oid, size):
    cursor.execute("INSERT INTO file (name, object, size) VALUES (%s, %s, %s)", (name, oid, size))


class Files(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self):
        _, way, name = self.path.split("/")
        body = self.body()
        with connection() as connected, connected.cursor() as cursor:
            if way == "file":
                cursor.execute("SELECT count(*) FROM file")
                cursor.fetchone()
            oid = make(connected, body)
            name_it(cursor, name, oid, len(body))
        self.answer(200, str(oid).encode())

    def do_PUT(self):
        body = self.body()
        with connection() as connected, connected.cursor() as cursor:
            cursor.execute("SELECT object FROM file WHERE name = %s FOR UPDATE", (self.path.split("/")[-1],))
            written = connected.lobject(cursor.fetchone()[0], "rwb")
            written.truncate()
            written.write(body)
            written.close()
            cursor.execute("UPDATE file SET size = %s WHERE object = %s", (len(body), written.oid))
        self.answer(200, b"written")

    def do_GET(self):
        with connection() as connected, connected.cursor() as cursor:
            cursor.execute("SELECT object FROM file WHERE name = %s", (self.path.split("/")[-1],))
            body = connected.lobject(cursor.fetchone()[0], "rb").read()
            cursor.execute("SELECT count(*) FROM file")
            count = cursor.fetchone()[0]
        self.answer(200, body + b" of " + str(count).encode())

    def do_DELETE(self):
        with connection().cursor() as cursor:
            cursor.execute("SELECT count(*) FROM file")
            make(connection(), b"nothing")
        connection().rollback()
        self.answer(200, b"not made")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Files)
server.serve_forever()
