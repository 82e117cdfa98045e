"""Makes the collection that all users share, and the first notes in it, by asking the application."""

import contextlib
import socket
import subprocess
import time

from load import PASSWORD, SHARED, Client

NOTES = 10
PERMISSIONS = {"read": ["system.Authenticated"], "record:create": ["system.Authenticated"]}


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
        admin = Client(port, "admin", PASSWORD)
        admin.send("PUT", "/v1/accounts/admin", 201, {"data": {"password": PASSWORD}})
        bucket = SHARED.partition("/collections")[0]
        admin.send("PUT", bucket, 201, {"permissions": {"read": ["system.Authenticated"]}})
        admin.send("PUT", SHARED, 201, {"permissions": PERMISSIONS})
        for number in range(NOTES):
            note = {"title": f"note {number}", "priority": number % 5}
            admin.send("POST", f"{SHARED}/records", 201, {"data": note})
    finally:
        application.terminate()
        application.wait()


main()
