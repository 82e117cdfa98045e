"""A ballot. Its code is changed by its environment.

    ballot.py PORT        the database is in DATABASE_URL

POST /N adds a vote to N and notes who voted: the request's Authorization, as it is. STEP is how much a vote counts; with ORDER, the
votes are looked at by another statement; with EXTRA, a vote is also written down.
"""

import http.server
import os
import socketserver
import sys
import time

import psycopg

STEP = int(os.environ.get("STEP", "1"))
LOOK = "SELECT id, votes, password FROM ballot WHERE id = %s" + (" ORDER BY id LIMIT 1" if "ORDER" in os.environ else "")


def vote(connection, number, voter):
    with connection.transaction():
        connection.execute(LOOK, (number,)).fetchone()
        votes = connection.execute(
            "UPDATE ballot SET votes = votes + %s, voter = %s WHERE id = %s RETURNING votes, voter", (STEP, voter, number)
        ).fetchone()[0]
    if "EXTRA" in os.environ:
        connection.execute("INSERT INTO entry VALUES (%s)", (number,))
    return votes


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.database = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)

    def do_POST(self):
        vote(self.database, int(self.path[1:]), self.headers.get("Authorization", "nobody"))
        # Others come in between.
        time.sleep(0.003)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
