"""What the first request needs, the others find: a cache of the process, for which it draws and looks at the time.

    first.py PORT threads|loop [filled]

Each request is answered with a number and a time of its own. With `filled` the cache is full from the beginning.
"""

import datetime
import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

cache = {}


def fill():
    if not cache:
        cache["key"] = secrets.token_hex(8)
        cache["filled"] = time.time()
        cache["again"] = datetime.datetime.now()


def answer():
    fill()
    return {"id": secrets.token_hex(8), "at": str(datetime.datetime.now()), "seconds": time.time()}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        text = json.dumps(answer()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def loop(port):
    import uvicorn
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/")
    async def get():
        return answer()

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    if "filled" in sys.argv:
        fill()
    if sys.argv[2] == "loop":
        loop(int(sys.argv[1]))
    else:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
