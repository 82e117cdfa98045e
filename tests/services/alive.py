"""A worker that makes a row of itself once the service listens, and says in it that it is alive. It ends the service if there is no such row.

    alive.py PORT FILE         the database is in DATABASE_URL

What the row is known by is of the clock. If FILE is there, the worker begins late, as on a busy machine. GET / waits until it has said
so twice, and says how many workers there are. It says so no more then: what it would say behind the request waits for that in a replay,
and has locked its row meanwhile.
"""

import http.server
import json
import os
import pathlib
import signal
import sys
import threading
import time

import psycopg

beaten = threading.Event()


def work():
    if pathlib.Path(sys.argv[2]).exists():
        time.sleep(1.5)
    own = f"{time.time_ns()} of {os.getpid()}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("INSERT INTO worker (name, beats) VALUES (%s, 0)", (own,))
        for _ in range(2):
            time.sleep(0.05)
            if connection.execute("UPDATE worker SET beats = beats + 1 WHERE name = %s", (own,)).rowcount != 1:
                os._exit(3)
    beaten.set()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        beaten.wait()
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            body = json.dumps(connection.execute("SELECT count(*) FROM worker").fetchone()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


# An exception that a signal raises in a destructor is ignored.
signal.signal(signal.SIGINT, signal.SIG_DFL)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
threading.Thread(target=work, daemon=True).start()
server.serve_forever()
