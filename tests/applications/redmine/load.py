"""Users at a time, each of which logs in, and then writes, lists, changes and deletes issues."""

import http.client
import http.cookies
import os
import re
import sys
import threading
import urllib.parse

USERS = 8
PASSWORD = "a password"
ROUNDS = int(os.environ.get("ROUNDS", "3"))


class Client:
    """A browser, as far as the application needs one."""

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
            raise AssertionError(f"{method} {target}: {answer.status}\n{text[:300]}")
        for line in answer.headers.get_all("Set-Cookie", []):
            for cookie in http.cookies.SimpleCookie(line).values():
                self.cookies[cookie.key] = cookie.value
        self.location = answer.headers.get("Location")
        return text

    def get(self, target):
        return self.send("GET", target, 200)

    def submit(self, target, page, form):
        token = re.search(r'name="authenticity_token" value="([^"]+)"', page)[1]
        return self.send("POST", target, 302, form | {"authenticity_token": token})


def work(port, number):
    client = Client(port)
    login = {"username": f"user-{number}", "password": PASSWORD}
    client.submit("/login", client.get("/login"), login)
    issues = "/projects/work/issues"
    for each in range(ROUNDS):
        page = client.get(f"{issues}/new")
        fields = {
            "issue[tracker_id]": "1",
            "issue[subject]": f"issue {each} of {number}",
            "issue[description]": "What happened, and what should have.",
            "issue[status_id]": "1",
            "issue[priority_id]": "2",
        }
        client.submit(issues, page, fields)
        issue = urllib.parse.urlsplit(client.location).path
        client.get(issues)
        page = client.get(issue)
        lock = re.search(r'name="issue\[lock_version\]"[^>]*value="(\d+)"|value="(\d+)"[^>]*name="issue\[lock_version\]"', page)
        change = {"_method": "patch", "issue[notes]": f"A note by {number}.", "issue[done_ratio]": "50", "issue[lock_version]": lock[1] or lock[2]}
        client.submit(issue, page, change)
        page = client.get(issue)
        if each % 3 == 2:
            client.submit(issue, page, {"_method": "delete"})


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
