"""A counter, and a read of it that takes long to plan: a function that is called immutable is computed by the planner, before the
statement takes its snapshot.

    planned.py PORT FILE       the database is in DATABASE_URL

POST / adds one, and commits when FILE is there. GET / says how many there are.
"""

import http.server
import json
import os
import pathlib
import socketserver
import sys
import threading
import time

import psycopg

file = pathlib.Path(sys.argv[2])
own = threading.local()


def connection():
    if not hasattr(own, "connection"):
        own.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    return own.connection


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        with connection().transaction():
            connection().execute("UPDATE counter SET n = n + 1")
            while not file.exists():
                time.sleep(0.01)
        self.answer(True)

    def do_GET(self):
        self.answer(connection().execute("SELECT n, slow(1), now() > '2001-01-01' FROM counter").fetchone())

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
