"""Users at a time, each of which makes an account, and then writes, lists, changes and deletes notes."""

import base64
import http.client
import json
import os
import sys
import threading

USERS = 8
PASSWORD = "a password"
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SHARED = "/v1/buckets/shared/collections/notes"


class Client:
    """Sends JSON as somebody, with the password each time."""

    def __init__(self, port, user, password):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.user = user
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.headers = {"Content-Type": "application/json", "Authorization": f"Basic {token}"}

    def send(self, method, target, expected, body=None, match=None):
        """What is answered, and its `ETag`."""
        headers = self.headers | ({"If-Match": match} if match else {})
        self.connection.request(method, target, json.dumps(body) if body else None, headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        # Two records of a collection in one millisecond: it says to try again.
        if answer.status == 409 and method == "POST":
            return self.send(method, target, expected, body, match)
        if answer.status != expected:
            raise AssertionError(f"{method} {target}: {answer.status}\n{text[:2000]}")
        return json.loads(text), answer.headers["ETag"]

    def get(self, target):
        return self.send("GET", target, 200)[0]


def work(port, number):
    client = Client(port, f"user-{number}", PASSWORD)
    client.send("PUT", f"/v1/accounts/{client.user}", 201, {"data": {"password": PASSWORD}})
    if client.get("/v1/")["user"]["id"] != f"account:{client.user}":
        raise AssertionError(f"{client.user} has not logged in")
    bucket = f"/v1/buckets/of-{client.user}"
    client.send("PUT", bucket, 201)
    client.send("POST", f"{bucket}/collections", 201, {"data": {"id": "tasks"}})
    tasks = f"{bucket}/collections/tasks/records"
    for each in range(ROUNDS):
        body = {"data": {"title": f"task {each}", "priority": each % 5, "done": False}}
        answer, tag = client.send("POST", tasks, 201, body)
        task = f"{tasks}/{answer['data']['id']}"
        _, tag = client.send("PATCH", task, 200, {"data": {"done": True}}, match=tag)
        # Somebody who has not seen that change.
        client.send("PATCH", task, 412, {"data": {"done": False}}, match='"1"')
        body["data"]["title"] = f"task {each}, written anew"
        client.send("PUT", task, 200, body, match=tag)
        client.get(f"{tasks}?done=false&min_priority=1&_sort=-priority,title&_limit=5")
        client.send("POST", f"{SHARED}/records", 201, {"data": {"title": f"note {each} of {number}", "priority": 3}})
        client.get(f"{SHARED}/records?_sort=-last_modified")
        client.get(f"{SHARED}/records?priority=3&like_title=of+{number}&_sort=title")
        if each % 3 == 2:
            client.send("DELETE", task, 200)


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
