"""Says how long it slept, by both functions that measure: python3 measured.py PORT [filled]."""

import random
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        began, began_ns = time.perf_counter(), time.perf_counter_ns()
        time.sleep(random.random() / 100)
        took = f"{time.perf_counter() - began:.7f} {time.perf_counter_ns() - began_ns}".encode()
        self.send_response(200)
        self.send_header("X-Process-Time", str(time.monotonic() - began))
        self.send_header("Content-Length", str(len(took)))
        self.end_headers()
        self.wfile.write(took)

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
