"""Users at a time, each of which logs in, and then writes, lists and changes notes."""

import http.client
import http.cookies
import os
import re
import sys
import threading
import urllib.parse

USERS = 8
PASSWORD = "a password"
ROUNDS = int(os.environ.get("ROUNDS", "8"))


def name(number):
    return f"user-{number}"


class Client:
    """A browser, as far as the pages need one."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.cookies = {}

    def send(self, method, target, expected, form=None):
        headers = {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
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

    def submit(self, target, page, form):
        token = re.search(r'name="_csrf" value="([^"]+)"', page)[1]
        return self.send("POST", target, 302, form | {"_csrf": token})


def work(port, number):
    client = Client(port)
    page = client.get("/login")
    client.submit("/login", page, {"username": name(number), "password": PASSWORD})
    for each in range(ROUNDS):
        client.submit("/notes/add", client.get("/notes/add"), {"text": f"note {each} of {number}"})
        client.get("/statistics")
        own = re.findall(rf"/notes/(\d+)\">note {each} of {number}<", client.get("/notes"))
        change = f"/notes/{own[0]}"
        client.submit(change, client.get(change), {"text": f"changed by {number}, {each}"})


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
