"""Accounts under READ COMMITTED.

    refused.py PORT        the database is in DATABASE_URL

POST / pays from the first account to the second: it locks them in this order, and before it locks the second it waits until a payment was
refused. DELETE / is refused: it locks the second account, rolls back, and says what was there. With SLOW in its environment it takes half a
second before it locks, and POST does not wait for it.
"""

import http.server
import os
import queue
import socketserver
import sys
import threading
import time

import psycopg

pool = queue.LifoQueue()
refused = threading.Event()
SLOW = "SLOW" in os.environ
BALANCE = "SELECT balance FROM account WHERE id = %s FOR UPDATE"


def connected(work):
    try:
        connection = pool.get_nowait()
    except queue.Empty:
        connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    try:
        return work(connection)
    finally:
        pool.put(connection)


def pay(connection):
    with connection.transaction():
        connection.execute(BALANCE, (1,))
        if not SLOW:
            refused.wait(10)
        paid = connection.execute(BALANCE, (2,)).fetchone()[0]
        connection.execute("UPDATE account SET balance = balance + 1 WHERE id = 2")
    return paid


def refuse(connection):
    if SLOW:
        time.sleep(0.5)
    with connection.transaction() as transaction:
        balance = connection.execute(BALANCE, (2,)).fetchone()[0]
        raise psycopg.Rollback(transaction)
    refused.set()
    return balance


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, work):
        body = str(connected(work)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.answer(pay)

    def do_DELETE(self):
        self.answer(refuse)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
