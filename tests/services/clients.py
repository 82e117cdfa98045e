"""A service that keeps and shows who its clients are, as `accept` and as `getpeername` tell.

    clients.py PORT     the database is in DATABASE_URL

POST /NAME makes a row, and answers it.
"""

import http.server
import json
import os
import signal
import sys
import threading

import psycopg


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        accepted, asked = self.client_address, self.connection.getpeername()
        values = (self.path[1:], str(accepted), str(asked))
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            connection.execute("INSERT INTO visit VALUES (%s, %s, %s)", values)
        body = json.dumps(values).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
signal.sigwait({signal.SIGINT, signal.SIGTERM})
