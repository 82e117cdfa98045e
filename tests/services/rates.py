"""Asks for rates by HTTPS before it writes to its database; or gives them.

    rates.py PORT URL                    asks there; the database is in DATABASE_URL
    rates.py --give PORT CERTIFICATE     no two answers are the same
"""

import itertools
import os
import ssl
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

mine = threading.local()
count = itertools.count(1)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class Giver(Handler):
    def do_GET(self):
        self.say(f"{self.path} {next(count)}")


class Asker(Handler):
    def do_POST(self):
        import psycopg

        with urllib.request.urlopen(sys.argv[2] + self.path) as answer:
            text = answer.read().decode()
        if not hasattr(mine, "database"):
            mine.database = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        mine.database.execute("INSERT INTO seen (text) VALUES (%s)", [text])
        self.say(text)


if sys.argv[1] == "--give":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Giver)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
else:
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Asker)
server.serve_forever()
