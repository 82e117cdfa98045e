"""Users at a time, each of which makes an account, logs in, and then writes, lists, changes and deletes notes."""

import http.client
import json
import os
import sys
import threading

USERS = 8
PASSWORD = "a password"
ROUNDS = int(os.environ.get("ROUNDS", "3"))


class Client:
    """Sends JSON as somebody."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Content-Type": "application/json"}

    def send(self, method, target, body=None, expected=(200, 201)):
        text = json.dumps(body) if body is not None else None
        self.connection.request(method, target, text, self.headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status not in expected:
            raise AssertionError(f"{method} {target}: {answer.status}\n{text[:2000]}")
        return json.loads(text) if text else None


def work(port, number):
    client = Client(port)
    login = {"name": f"user-{number}", "password": PASSWORD}
    client.send("POST", "/auth/register", login)
    client.headers["Authorization"] = "Bearer " + client.send("POST", "/auth/login", login)["token"]
    for each in range(ROUNDS):
        note = client.send("POST", "/notes", {"text": f"note {each} of {number}", "tags": ["a", f"t{each}"]})["id"]
        client.send("GET", "/notes")
        version = client.send("GET", f"/notes/{note}")["version"]
        client.send("PUT", f"/notes/{note}", {"text": "changed", "version": version})
        # Somebody who has not seen that change.
        client.send("PUT", f"/notes/{note}", {"text": "changed", "version": 0}, (409,))
        if each % 3 == 2:
            client.send("DELETE", f"/notes/{note}")
        client.send("GET", f"/notes/{max(1, note - 3)}", None, (200, 404))


def main():
    failed = []

    def attempt(number):
        try:
            work(int(sys.argv[1]), number)
        except Exception as error:  # noqa: BLE001: whatever it is, it is told at the end
            failed.append(error)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(USERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failed:
        print(error, file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
