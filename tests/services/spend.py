"""Money that people spend who show a token and a password: both are in the database as they are sent, which no service should do.

    spend.py PORT       the database is in DATABASE_URL

POST /spend with `Authorization: Bearer TOKEN` and {"password": …, "amount": N} answers with the number of the entry, the token and what is
left, and with 403 where that is wrong or nothing is spent.
"""

import http.server
import json
import os
import queue
import socketserver
import sys

import psycopg
from psycopg.errors import SerializationFailure

pool = queue.LifoQueue()
PERSON = "SELECT id FROM person WHERE token = %s AND password = %s"
TAKE = "UPDATE person SET left_over = left_over - %s WHERE id = %s RETURNING left_over"
ENTER = "INSERT INTO entry (person, amount) VALUES (%s, %s) RETURNING id"


def transaction(work):
    while True:
        try:
            connection = pool.get_nowait()
        except queue.Empty:
            connection = psycopg.connect(os.environ["DATABASE_URL"])
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        try:
            with connection.transaction():
                return work(connection)
            return None
        except SerializationFailure:
            pass
        finally:
            if not connection.closed:
                pool.put(connection)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = self.headers["Authorization"].removeprefix("Bearer ")

        def spend(c):
            person = c.execute(PERSON, (token, asked["password"])).fetchone()
            if person is None:
                return None
            entry = c.execute(ENTER, (person[0], asked["amount"])).fetchone()[0]
            left = c.execute(TAKE, (asked["amount"], person[0])).fetchone()[0]
            if asked["amount"] == 0:
                # Its number was drawn in vain.
                raise psycopg.Rollback()
            return {"entry": entry, "token": token, "left": left}

        done = transaction(spend)
        self.answer(200 if done else 403, done or {})

    def answer(self, status, what):
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
