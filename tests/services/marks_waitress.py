"""Every request writes rows with its own name: WSGI in Waitress' threads, which another one hands requests to.

    python marks_waitress.py PORT [METRICS]        the database is in DATABASE_URL

At METRICS it answers 404, before it listens on PORT.
"""

import http.server
import os
import sys
import threading
import time

import psycopg2
import waitress

INSERT = "INSERT INTO mark VALUES (%s, %s)"


def app(environ, start_response):
    name = environ["PATH_INFO"].split("/")[-1]
    connection = psycopg2.connect(os.environ["DATABASE_URL"])
    try:
        with connection, connection.cursor() as cursor:
            for step in (1, 2):
                cursor.execute(INSERT, (name, step))
    finally:
        connection.close()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [name.encode()]


class Metrics(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_error(404)


if len(sys.argv) > 2:
    metrics = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Metrics)
    threading.Thread(target=metrics.serve_forever, daemon=True).start()
    # What a service loads until it listens.
    time.sleep(0.5)
waitress.serve(app, listen=f"127.0.0.1:{sys.argv[1]}", threads=8)
