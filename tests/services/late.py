"""Says whether its background is on time, and starts more slowly the second time.

    late.py PORT FILE [FIRST]     the file is there once it has started; with FIRST it listens before it starts slowly

A thread of no request looks at the clock again and again. GET / looks as well, and says whether that thread is ahead.
"""

import http.server
import os
import sys
import threading
import time

SLOWER = 8
MUCH = 4

apart = 0.0


def look():
    global apart
    while True:
        apart = time.time()
        time.sleep(0.02)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"ahead" if apart - time.time() > MUCH else b"on time"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


address = ("127.0.0.1", int(sys.argv[1]))
listening = http.server.ThreadingHTTPServer(address, Handler) if len(sys.argv) > 3 else None
if os.path.exists(sys.argv[2]):
    time.sleep(SLOWER)
open(sys.argv[2], "w").close()
threading.Thread(target=look, daemon=True).start()
(listening or http.server.ThreadingHTTPServer(address, Handler)).serve_forever()
