"""Asks others before it writes to its database.

    caller.py PORT HTTP-PORT REDIS-SOCKET
"""

import http.client
import os
import queue
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

port, http_port, redis_socket = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
mine = threading.local()
pool = queue.LifoQueue()


def ask_http(method, target, body=None):
    """On one connection for each thread."""
    if not hasattr(mine, "http"):
        mine.http = http.client.HTTPConnection("127.0.0.1", http_port)
    mine.http.request(method, target, body)
    return mine.http.getresponse().read().decode()


def ask_redis(*words):
    """On a connection that another thread may have made."""
    try:
        connection = pool.get_nowait()
    except queue.Empty:
        plain = socket.socket(socket.AF_UNIX)
        plain.connect(redis_socket)
        connection = plain.makefile("rwb", buffering=0)
        say(connection, "PING")
    answer = say(connection, *words)
    pool.put(connection)
    return answer


def say(connection, *words):
    text = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    connection.write(f"*{len(words)}\r\n{text}".encode())
    answer = connection.readline().decode().strip()
    if answer[0] == "$":
        answer = connection.read(int(answer[1:]) + 2)[:-2].decode()
    return answer


def ask_itself():
    own = http.client.HTTPConnection("127.0.0.1", port)
    own.request("GET", "/plain")
    return own.getresponse().read().decode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.say("plain")

    def do_POST(self):
        got = [
            ask_http("GET", "/rates" + self.path),
            ask_redis("INCR", "calls"),
            ask_http("POST", "/orders", self.path),
            ask_redis("GET", "calls"),
            ask_itself(),
        ]
        text = " ".join(got)
        if not hasattr(mine, "database"):
            mine.database = psycopg.connect(os.environ["DATABASE_URL"])
        mine.database.execute("INSERT INTO seen (text) VALUES (%s)", [text])
        mine.database.commit()
        self.say(text)

    def say(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
