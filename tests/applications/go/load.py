"""Users at a time, each of which logs in, and then writes, lists and changes notes."""

import http.client
import http.cookies
import json
import os
import re
import sys
import threading
import urllib.parse

USERS = 8
PASSWORD = "a password"
ROUNDS = int(os.environ.get("ROUNDS", "4"))


def name(number):
    return f"user-{number}"


class Client:
    """A browser, as far as the pages need one, and somebody who uses the API."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.origin = f"http://127.0.0.1:{port}"
        self.cookies, self.headers = {}, {}

    def send(self, method, target, expected, body=None, kind=None, **headers):
        headers |= {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items()), "Referer": self.origin + target}
        headers |= {"Content-Type": kind} if kind else {}
        self.connection.request(method, target, body, headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status != expected:
            raise AssertionError(f"{method} {target}: {answer.status}\n{text[:2000]}")
        for line in answer.headers.get_all("Set-Cookie", []):
            for cookie in http.cookies.SimpleCookie(line).values():
                self.cookies[cookie.key] = cookie.value
        return answer.headers.get("Location"), text

    def get(self, target):
        return self.send("GET", target, 200)[1]

    def submit(self, target, form):
        token = re.search(r'name="csrf_token" value="([^"]+)"', self.get(target))[1].replace("&#43;", "+")
        form = urllib.parse.urlencode(form | {"csrf_token": token})
        return self.send("POST", target, 303, form, "application/x-www-form-urlencoded")[0]

    def ask(self, method, target, what=None, **headers):
        body = json.dumps(what) if what else None
        return json.loads(self.send(method, target, 200, body, "application/json", **headers)[1])


def work(port, number):
    client = Client(port)
    client.submit("/login", {"name": name(number), "password": PASSWORD})
    for each in range(ROUNDS):
        made = client.submit("/notes/add", {"text": f"note {each} of {number}"})
        if made not in client.get("/notes"):
            raise AssertionError(f"{made} is not in the list")
        client.submit(made, {"text": f"changed by {number}, {each}"})
    token = client.ask("POST", "/api/token", {"name": name(number), "password": PASSWORD})["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    for each in range(ROUNDS):
        made = client.ask("POST", "/api/notes", {"text": f"by the API, {each} of {number}"}, **bearer)
        if made["id"] != client.ask("GET", "/api/notes", **bearer)[0]["id"]:
            raise AssertionError(f"{made} is not in the list")


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
