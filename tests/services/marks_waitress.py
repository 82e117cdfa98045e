"""Every request writes rows with its own name: WSGI in Waitress' threads, which another one hands requests to.

/transaction writes them itself, /thread has a thread of its own do that, /executor one of a pool, and
/timer one that waits first.

    python marks_waitress.py PORT [METRICS]        the database is in DATABASE_URL

At METRICS it answers 404, before it listens on PORT.
"""

import concurrent.futures
import http.server
import os
import sys
import threading
import time

import psycopg2
import waitress

INSERT = "INSERT INTO mark VALUES (%s, %s)"


POOL = concurrent.futures.ThreadPoolExecutor(2)


def transaction(name):
    connection = psycopg2.connect(os.environ["DATABASE_URL"])
    try:
        with connection, connection.cursor() as cursor:
            for step in (1, 2):
                cursor.execute(INSERT, (name, step))
    finally:
        connection.close()


def app(environ, start_response):
    way, name = environ["PATH_INFO"].split("/")[-2:]
    if way == "executor":
        POOL.submit(transaction, name).result()
    elif way in ("thread", "timer"):
        timed = threading.Timer(0.01, transaction, [name])
        thread = timed if way == "timer" else threading.Thread(target=transaction, args=[name])
        thread.start()
        thread.join()
    else:
        transaction(name)
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
