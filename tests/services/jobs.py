"""A service that works in the background: it says that it is alive, and does jobs that requests leave in a table.

    jobs.py PORT        the database is in DATABASE_URL

When it starts, it makes a row of itself, which a thread updates each 200 ms; it ends if the row is not there. Another thread takes a job,
does it, and writes what came of it in a transaction of its own; where there is none it looks again after 50 ms. POST /job/TEXT leaves a
job, GET /job/ID answers what became of it, GET /worker how often it has said that it is alive. What was done is appended to the file DONE,
a line each.
"""

import datetime
import http.server
import json
import os
import queue
import signal
import socketserver
import sys
import threading
import time
import uuid

import psycopg

NAME = uuid.uuid4()
pool = queue.LifoQueue()


def connect():
    connection = psycopg.connect(os.environ["DATABASE_URL"])
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    return connection


def transaction(work, connection=None):
    if connection is not None:
        with connection.transaction():
            return work(connection)
    try:
        connection = pool.get_nowait()
    except queue.Empty:
        connection = connect()
    try:
        with connection.transaction():
            return work(connection)
    finally:
        pool.put(connection)


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def live(connection):
    transaction(lambda c: c.execute("INSERT INTO worker VALUES (%s, %s, 0)", (NAME, now())), connection)
    while True:
        time.sleep(0.2)
        beat = "UPDATE worker SET seen = %s, beats = beats + 1 WHERE name = %s"
        if transaction(lambda c: c.execute(beat, (now(), NAME)).rowcount, connection) != 1:
            print("the worker's row is gone", flush=True)
            os._exit(3)


def take(c):
    free = "SELECT id, text FROM job WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
    job = c.execute(free).fetchone()
    if job is not None:
        c.execute("UPDATE job SET state = 'taken', worker = %s, at = %s WHERE id = %s", (NAME, now(), job[0]))
    return job


def work(connection):
    while True:
        job = transaction(take, connection)
        if job is None:
            time.sleep(0.05)
            continue
        number, text = job
        time.sleep(0.01)
        with open(os.environ["DONE"], "ab", buffering=0) as file:
            file.write(f"{number} {text}\n".encode())
        result = text.upper()
        done = "UPDATE job SET state = 'done', result = %s, at = %s WHERE id = %s"
        transaction(lambda c: c.execute(done, (result, now(), number)), connection)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        text = self.path.split("/")[-1]
        leave = "INSERT INTO job (text, state) VALUES (%s, 'new') RETURNING id"
        number = transaction(lambda c: c.execute(leave, (text,)).fetchone()[0])
        self.answer({"job": number})

    def do_GET(self):
        _, what, *rest = self.path.split("/")
        if what == "worker":
            (beats,) = transaction(lambda c: c.execute("SELECT sum(beats)::int FROM worker").fetchone())
            return self.answer({"beats": beats})
        ask = "SELECT state, result, worker::text, at::text FROM job WHERE id = %s"
        state, result, worker, at = transaction(lambda c: c.execute(ask, (int(rest[0]),)).fetchone())
        self.answer({"state": state, "result": result, "worker": worker, "at": at})

    def answer(self, what):
        body = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 100


for what in (live, work):
    threading.Thread(target=what, args=(connect(),), daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.signal(signal.SIGINT, lambda *_: os._exit(0))
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
