"""Accounts between which money is moved: threads, processes and psycopg, and nothing that knows of tracing.

    wallet.py PORT PROCESSES [PEM]  the database is in DATABASE_URL; with certificate and key in PEM it speaks HTTPS

GET /ID answers with a balance, POST /FROM/TO/AMOUNT moves money. A customer has two accounts, of which the sum must not
be negative; it is checked under REPEATABLE READ, so two transfers at a time can both find enough.
"""

import http.server
import os
import queue
import signal
import socketserver
import ssl
import sys

import psycopg
from psycopg.errors import SerializationFailure

# Whoever needs a connection takes the one that was used last, or makes one.
pool = queue.LifoQueue()


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
        except SerializationFailure:
            pass
        finally:
            if not connection.closed:
                pool.put(connection)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        account = int(self.path[1:])
        query = "SELECT balance FROM account WHERE id = %s"
        self.answer(200, transaction(lambda c: c.execute(query, (account,)).fetchone()[0]))

    def do_POST(self):
        source, target, amount = map(int, self.path[1:].split("/"))

        def move(c):
            query = "SELECT sum(balance) FROM account WHERE id / 2 = %s"
            if c.execute(query, (source // 2,)).fetchone()[0] < amount:
                return None
            change = "UPDATE account SET balance = balance + %s WHERE id = %s RETURNING balance"
            c.execute(change, (amount, target))
            return c.execute(change, (-amount, source)).fetchone()[0]

        left = transaction(move)
        self.answer(409 if left is None else 200, left)

    def answer(self, status, what):
        body = str(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 100


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3])
    # The handshake is the thread's that serves the connection.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
children = []
for _ in range(int(sys.argv[2]) - 1):
    child = os.fork()
    if child == 0:
        children = []
        break
    children.append(child)


def stop(*_):
    for child in children:
        os.kill(child, signal.SIGTERM)
    os._exit(0)


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
server.serve_forever()
