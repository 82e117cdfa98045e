"""Users at a time, each of which makes an account, logs in, and then writes, lists, changes and deletes notes and other objects."""

import http.client
import json
import os
import sys
import threading
import urllib.parse

USERS = 8
PASSWORD = "a password"
ROUNDS = int(os.environ.get("ROUNDS", "3"))


class Client:
    """Sends JSON as somebody."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Content-Type": "application/json", "X-Parse-Application-Id": "app"}

    def send(self, method, target, body=None, expected=(200, 201)):
        text = json.dumps(body) if body is not None else None
        self.connection.request(method, f"/parse/{target}", text, self.headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status not in expected:
            raise AssertionError(f"{method} {target}: {answer.status}\n{text[:2000]}")
        return json.loads(text) if text else None


def listing(name, **options):
    return f"classes/{name}?" + urllib.parse.urlencode(options)


def work(port, number):
    client = Client(port)
    login = {"username": f"user-{number}", "password": PASSWORD}
    client.send("POST", "users", login | {"email": f"user-{number}@example.com"})
    client.headers["X-Parse-Session-Token"] = client.send("POST", "login", login)["sessionToken"]
    board = client.send("GET", "classes/Board")["results"][0]["objectId"]
    for each in range(ROUNDS):
        me = client.send("GET", "users/me")["objectId"]
        owner = {"__type": "Pointer", "className": "_User", "objectId": me}
        note = {"text": f"note {each} of {number}", "board": board, "tags": ["x", str(each)], "owner": owner}
        note = "classes/Note/" + client.send("POST", "classes/Note", note)["objectId"]
        client.send("GET", listing("Note", order="-createdAt,objectId", limit=20, include="owner"))
        likes = {"__op": "Increment", "amount": 2}
        client.send("PUT", note, {"text": "changed", "likes": likes, "tags": {"__op": "AddUnique", "objects": ["y"]}})
        client.send("GET", note)
        client.send("POST", "functions/stats", {})
        for n in range(3):
            client.send("POST", "classes/Item", {"n": n, "of": number})
        client.send("GET", listing("Item", where=json.dumps({"of": number}), count=1, limit=2, order="n,objectId"))
        if each % 3 == 2:
            client.send("DELETE", note)


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
