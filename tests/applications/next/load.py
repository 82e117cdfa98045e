"""Users at a time, each of which logs in, and then writes, lists, changes and deletes notes."""

import http.client
import http.cookies
import json
import os
import re
import sys
import threading

USERS = 8
PASSWORD = "a password"
ROUNDS = int(os.environ.get("ROUNDS", "3"))
BOUNDARY = "a-boundary-of-a-form"


def multipart(form):
    part = '--{}\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    return "".join(part.format(BOUNDARY, key, value) for key, value in form.items()) + f"--{BOUNDARY}--\r\n"


class Client:
    """A browser, as far as the application needs one."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.cookies = {}

    def send(self, method, target, expected, body=None, kind=None):
        headers = {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        if kind:
            headers["Content-Type"] = kind
        self.connection.request(method, target, body, headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status != expected:
            raise AssertionError(f"{method} {target}: {answer.status}\n{text[:2000]}")
        for line in answer.headers.get_all("Set-Cookie", []):
            for cookie in http.cookies.SimpleCookie(line).values():
                self.cookies[cookie.key] = cookie.value
        return text

    def get(self, target):
        return self.send("GET", target, 200)

    def json(self, method, target, expected=200, **what):
        return json.loads(self.send(method, target, expected, json.dumps(what) if what else None, "application/json"))

    def login(self, number):
        # The form of somebody whose browser runs no scripts.
        action = re.search(r'name="(\$ACTION_ID_\w+)"', self.get("/login"))[1]
        form = {action: "", "name": f"user-{number}", "password": PASSWORD}
        self.send("POST", "/login", 303, multipart(form), f"multipart/form-data; boundary={BOUNDARY}")
        if f"user-{number}" not in self.get("/notes"):
            raise AssertionError(f"user-{number} has not logged in")


def work(port, number):
    client = Client(port)
    client.login(number)
    for each in range(ROUNDS):
        title = f"note {each} of {number}"
        note = client.json("POST", "/api/notes", 201, title=title, tag=f"tag-{each % 2}")["id"]
        client.json("GET", "/api/notes?sort=newest")
        client.json("PATCH", f"/api/notes/{note}", title=f"{title}, changed", status="published")
        client.json("GET", f"/api/notes/{note}")
        client.get("/notes")
        if each % 3 == 2:
            client.json("DELETE", f"/api/notes/{note}")
            client.json("GET", f"/api/notes/{note}", 404)


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
