"""What services do that is hard to follow; no database.

    hard.py PORT        children that it may be asked for are in CHILDREN, as JSON: name -> arguments

POST /upload answers with length and checksum of the body, GET /child/NAME with what a child printed and how it ended.
GET /maps/LIBRARY runs a child that loads LIBRARY by an LD_PRELOAD of its own, and answers with what is in its memory.
GET /socket goes on as an echo, under an Upgrade. GET /again executes the program anew, which keeps the listening socket.
"""

import http.server
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import zlib


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        left, checksum = int(self.headers["Content-Length"]), 0
        length = left
        while left:
            part = self.rfile.read(min(left, 1 << 20))
            checksum, left = zlib.crc32(part, checksum), left - len(part)
        self.answer(f"{length} {checksum}")

    def do_GET(self):
        what, _, name = self.path[1:].partition("/")
        if what == "child":
            self.answer(run(json.loads(os.environ["CHILDREN"])[name]))
        elif what == "maps":
            own = {**os.environ, "LD_PRELOAD": name}
            self.answer(run(["cat", "/proc/self/maps"], env=own))
        elif what == "socket":
            self.echo()
        elif what == "again":
            self.answer("again")
            threading.Thread(target=again).start()
        else:
            self.answer(what)

    def echo(self):
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "websocket")
        self.end_headers()
        while part := self.connection.recv(4096):
            self.connection.sendall(part)
        self.close_connection = True

    def answer(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    return f"{done.stdout}{done.stderr}{done.returncode}"


def again():
    kept = server.socket.fileno()
    os.set_inheritable(kept, True)
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LISTENS": str(kept)})


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 100


# As daemons begin.
kept = int(os.environ.get("LISTENS", "0"))
for descriptor in range(3, 1024):
    if descriptor != kept:
        try:
            os.close(descriptor)
        except OSError:
            pass
server = Server(("127.0.0.1", int(sys.argv[1])), Handler, bind_and_activate=not kept)
if kept:
    server.socket.close()
    server.socket = socket.socket(fileno=kept)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: os._exit(0))
server.serve_forever()
