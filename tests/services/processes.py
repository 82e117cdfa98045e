"""A service of three processes with one listener, each of which keeps in its memory who came to it.

    processes.py PORT [deferred]     the database is in DATABASE_URL; nobody is told of a connection
                                     before something was sent on it

POST /NAME makes a row, and answers it: how often that one came to the process, and how many did.
"""

import http.server
import json
import os
import signal
import socket
import sys
import threading

import psycopg

PROCESSES = 3
seen = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        name = self.path[1:]
        seen[name] = seen.get(name, 0) + 1
        values = (name, seen[name], len(seen))
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            connection.execute("INSERT INTO visit VALUES (%s, %s, %s)", values)
        body = json.dumps(values).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
# All are woken by one connection, and who is late finds none.
server.socket.setblocking(False)
if "deferred" in sys.argv:
    server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
children = []
for _ in range(PROCESSES):
    child = os.fork()
    if child == 0:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        signal.sigwait({signal.SIGTERM})
        os._exit(0)
    children.append(child)
signal.sigwait({signal.SIGINT, signal.SIGTERM})
for child in children:
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
