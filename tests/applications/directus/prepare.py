"""Makes as many users as the load has, and the table of their notes, by asking the application."""

import contextlib
import os
import socket
import subprocess
import time

from load import PASSWORD, USERS, Client, email

FIELDS = [
    {"field": "id", "type": "integer", "schema": {"is_primary_key": True, "has_auto_increment": True}},
    {"field": "title", "type": "string", "schema": {}},
    {"field": "status", "type": "string", "schema": {"default_value": "draft"}},
    {"field": "author", "type": "uuid", "meta": {"special": ["user-created"]}, "schema": {}},
    {"field": "written", "type": "timestamp", "meta": {"special": ["date-created"]}, "schema": {}},
    {"field": "changed", "type": "timestamp", "meta": {"special": ["date-updated"]}, "schema": {}},
]


def free_port():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        return server.getsockname()[1]


def listens(port):
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main():
    port = free_port()
    application = subprocess.Popen(["./run", "serve", str(port)])
    try:
        while not listens(port):
            if application.poll() is not None:
                raise SystemExit("Error: the application has ended")
            time.sleep(0.1)
        admin = Client(port, os.environ["ADMIN_EMAIL"], os.environ["ADMIN_PASSWORD"])
        role = admin.send("GET", "/users/me")["role"]
        for number in range(USERS):
            admin.send("POST", "/users", email=email(number), password=PASSWORD, role=role)
        admin.send("POST", "/collections", collection="notes", schema={}, meta={}, fields=FIELDS)
    finally:
        application.terminate()
        application.wait()


main()
