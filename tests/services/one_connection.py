"""A service with one connection and a lock around it, which writes outside of requests as well.

    one_connection.py PORT FILE      the database is in DATABASE_URL

It writes when it starts. GET / comes from two at a time, each of which writes, waits for the other one, and looks how many jobs were written. A job is when
two have been told; if the file is there, before they look.
"""

import http.server
import os
import sys
import threading

import psycopg2

connection = psycopg2.connect(os.environ["DATABASE_URL"])
lock, both = threading.Lock(), threading.Barrier(2)
started, is_locked = threading.Event(), threading.Event()
come, told = threading.Semaphore(0), threading.Semaphore(0)
job_first = os.path.exists(sys.argv[2])


def run(statement, begun=None):
    with lock, connection, connection.cursor() as cursor:
        if begun:
            begun.set()
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else None


def work():
    run("INSERT INTO written SELECT 'start'")
    started.set()
    for _ in range(2):
        (come if job_first else told).acquire()
    run("INSERT INTO written (name) VALUES ('job')", is_locked)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        run("INSERT INTO written (name, by) VALUES ('request', 'it')")
        both.wait()
        come.release()
        if job_first:
            is_locked.wait()
        [[count]] = run("SELECT count(*) FROM written WHERE name = 'job'")
        body = b"%d" % count
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        told.release()

    def log_message(self, *_):
        pass


threading.Thread(target=work, daemon=True).start()
started.wait()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
