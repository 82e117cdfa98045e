"""Users at a time, each of which logs in, and then writes, lists, changes and deletes notes."""

import http.client
import json
import os
import sys
import threading

USERS = 8
PASSWORD = "a password"
ROUNDS = int(os.environ.get("ROUNDS", "3"))


def email(number):
    return f"user-{number}@example.com"


class Client:
    """Sends JSON as somebody who has logged in."""

    def __init__(self, port, user, password):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Content-Type": "application/json"}
        self.login("/auth/login", email=user, password=password)

    def login(self, target, **what):
        self.tokens = self.send("POST", target, **what)
        self.headers["Authorization"] = f"Bearer {self.tokens['access_token']}"

    def send(self, method, target, **body):
        self.connection.request(method, target, json.dumps(body) if body else None, self.headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status not in (200, 204):
            raise AssertionError(f"{method} {target}: {answer.status}\n{text[:2000]}")
        return json.loads(text)["data"] if text else None


def work(port, number):
    client = Client(port, email(number), PASSWORD)
    client.send("GET", "/users/me")
    for each in range(ROUNDS):
        note = client.send("POST", "/items/notes", title=f"note {each} of {number}")["id"]
        client.send("GET", "/items/notes?limit=20&sort=-id")
        client.send("PATCH", f"/items/notes/{note}", title=f"changed {each}", status="published")
        client.send("GET", f"/items/notes/{note}")
        client.send("GET", "/activity?limit=3&sort=-id")
        if each % 3 == 2:
            client.send("DELETE", f"/items/notes/{note}")
    client.login("/auth/refresh", refresh_token=client.tokens["refresh_token"], mode="json")
    client.send("GET", "/users/me")


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
