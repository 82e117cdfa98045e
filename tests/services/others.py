"""Whom a service calls: counts what it is asked, so no two answers are the same.

    others.py PORT SOCKET

HTTP on a port, the protocol of Redis (INCR, GET, PING) on a Unix socket. Each script counts as INCR does.
"""

import itertools
import json
import os
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

count = itertools.count(1)
values = {}
lock = threading.Lock()


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        asked = self.rfile.read(length).decode()
        body = json.dumps({"count": next(count), "asked": asked}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class Redis(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2].decode())
            self.wfile.write(self.answer(*words))

    def answer(self, command, *words):
        command = command.upper()
        key = words[-1] if words else None
        if command in ("EVAL", "EVALSHA"):
            command = "INCR"
        if command == "PING":
            return b"+PONG\r\n"
        with lock:
            if command == "INCR":
                values[key] = values.get(key, 0) + 1
                return b":%d\r\n" % values[key]
            value = str(values.get(key, "")).encode()
        return b"$%d\r\n%s\r\n" % (len(value), value)


class Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


if os.path.exists(sys.argv[2]):
    os.unlink(sys.argv[2])
redis = Listener(sys.argv[2], Redis)
threading.Thread(target=redis.serve_forever, daemon=True).start()
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Http).serve_forever()
