"""What a request draws and reads of the clock while a thread of a pool does so, too, and one that it has started.

    python apart.py PORT
"""

import concurrent.futures
import http.server
import json
import os
import random
import secrets
import sys
import threading
import time

# As servers do it in each of their processes.
random.seed(os.urandom(64))
POOL = concurrent.futures.ThreadPoolExecutor(2)


def drawn(times=30):
    all = []
    for _ in range(times):
        time.sleep(0.0005)
        all.append([secrets.token_hex(4), random.randrange(1_000_000), time.time()])
    return all


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        handed = POOL.submit(drawn)
        told = []
        started = threading.Thread(target=lambda: told.append(drawn(times=20)))
        started.start()
        own = drawn()
        started.join()
        body = json.dumps([own, handed.result(), told]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
