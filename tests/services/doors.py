"""A service with three listeners, which it opens one after the other: of its cluster, of its metrics, of its clients.

    doors.py CLUSTER METRICS PORT [SECONDS]     the database is in DATABASE_URL

The cluster's speaks no HTTP. GET METRICS/count answers how many marks there are, POST PORT/mark/NAME makes one. SECONDS are between each
two of them. GET PORT/count is not found.
"""

import http.server
import json
import os
import queue
import signal
import socket
import sys
import threading
import time

import psycopg

pool = queue.LifoQueue()


def transaction(statement, values=()):
    try:
        connection = pool.get_nowait()
    except queue.Empty:
        connection = psycopg.connect(os.environ["DATABASE_URL"])
    try:
        with connection.transaction():
            return connection.execute(statement, values).fetchone()[0]
    finally:
        pool.put(connection)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Metrics(Handler):
    def do_GET(self):
        self.answer(200, transaction("SELECT count(*) FROM mark"))


class App(Handler):
    def do_GET(self):
        self.answer(404, "there is none")

    def do_POST(self):
        name = self.path.rsplit("/", 1)[1]
        self.answer(200, transaction("INSERT INTO mark VALUES (%s, 1) RETURNING name", (name,)))


def cluster(listener):
    while True:
        peer, _ = listener.accept()
        peer.sendall(b"this is no HTTP\n")
        peer.close()


def serve(handler, port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    of_cluster, of_metrics, port = (int(port) for port in sys.argv[1:4])
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 0
    listener = socket.create_server(("127.0.0.1", of_cluster))
    threading.Thread(target=cluster, args=(listener,), daemon=True).start()
    time.sleep(seconds)
    serve(Metrics, of_metrics)
    time.sleep(seconds)
    serve(App, port)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
main()
