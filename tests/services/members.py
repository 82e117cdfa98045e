"""Members who log in. What has only been read is rolled back by closing its connection.

    members.py PORT        the database is in DATABASE_URL

POST /NAME with a password as its form answers with the number of a token, which a function of the database makes, or 403.
"""

import hashlib
import http.server
import os
import socketserver
import sys
import urllib.parse

import psycopg

URL = os.environ["DATABASE_URL"]


def password_of(name):
    connection = psycopg.connect(URL)
    try:
        return connection.execute("SELECT password FROM member WHERE name = %s", (name,)).fetchone()[0]
    finally:
        connection.close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        given = urllib.parse.parse_qs(body)["password"][0]
        name = self.path[1:]
        if password_of(name) != hashlib.md5(given.encode()).hexdigest():
            return self.answer(403, "no")
        with psycopg.connect(URL, autocommit=True) as connection:
            token = connection.execute("SELECT new_token(%s)", (name,)).fetchone()[0]
        self.answer(200, token)

    def answer(self, status, what):
        body = str(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
