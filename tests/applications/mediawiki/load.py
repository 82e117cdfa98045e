"""Users at a time, each of which logs in, and then writes, reads, changes and searches pages."""

import contextlib
import html.parser
import http.client
import http.cookies
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

USERS = 8
PASSWORD = "a long password"
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SITE = "wiki.example"
WIKI = pathlib.Path("target/usr/share/mediawiki").resolve()
BOUNDARY = "a-boundary-of-a-form"


def name(number):
    return f"User {number}"


class Form(html.parser.HTMLParser):
    """The fields that a browser sends of a page's form, with what is in them."""

    def __init__(self, page, action):
        super().__init__()
        self.action, self.fields, self.inside, self.area = action, {}, False, None
        self.feed(page)
        if not self.fields:
            raise AssertionError(f"no form {action}\n{page[:2000]}")

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "form":
            self.inside = self.action in attributes.get("action", "")
        elif self.inside and tag == "textarea":
            self.area = attributes["name"]
            self.fields[self.area] = ""
        elif self.inside and tag == "input" and attributes.get("type") not in ("submit", "checkbox"):
            self.fields[attributes["name"]] = attributes.get("value", "")

    def handle_endtag(self, tag):
        if tag == "form":
            self.inside = False
        self.area = None

    def handle_data(self, data):
        if self.area:
            self.fields[self.area] += data.removeprefix("\n")


def multipart(form):
    part = '--{}\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    return "".join(part.format(BOUNDARY, key, value) for key, value in form.items()) + f"--{BOUNDARY}--\r\n"


class Client:
    """A browser, as far as the wiki needs one."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.cookies = {}

    def send(self, method, target, expected, body=None, kind=None):
        headers = {"Host": SITE, "Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
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
        if expected == 302:
            place = urllib.parse.urlsplit(answer.headers["Location"])
            return self.get(f"{place.path}?{place.query}")
        return text

    def get(self, target, *words):
        text = self.send("GET", target, 200)
        for word in words:
            if word not in text:
                raise AssertionError(f"GET {target}: no {word}\n{text[:2000]}")
        return text

    def login(self, number):
        target = "/index.php?title=Special:UserLogin"
        page = self.get(target)
        for style in re.findall(r'href="(/load\.php\?[^"]*only=styles[^"]*)"', page):
            self.get(style.replace("&amp;", "&"))
        form = Form(page, "Special:UserLogin").fields | {"wpName": name(number), "wpPassword": PASSWORD}
        page = self.send("POST", target, 302, urllib.parse.urlencode(form), "application/x-www-form-urlencoded")
        if f">{name(number)}<" not in page:
            raise AssertionError(f"{name(number)} has not logged in")

    def edit(self, title, text):
        page = self.get(f"/index.php?title={title}&action=edit")
        form = Form(page, "action=submit").fields | {"wpTextbox1": text, "wpSummary": text[:20], "wpSave": "Save"}
        target = f"/index.php?title={title}&action=submit"
        return self.send("POST", target, 302, multipart(form).encode(), f"multipart/form-data; boundary={BOUNDARY}")


def work(port, number):
    client = Client(port)
    client.get("/index.php?title=Main_Page")
    client.login(number)
    for each in range(ROUNDS):
        title, text = f"Note_{number}_{each}", f"A note of [[User:{name(number)}]], see [[List]]."
        client.edit(title, text)
        client.edit(title, f"== Changed ==\n{text} [[Category:Notes]]")
        client.get(f"/index.php?title={title}", "Changed")
        client.get(f"/index.php?title={title}&action=history", "prev")
        client.get("/index.php?title=Special:Search&search=note&fulltext=1")
        client.get("/index.php?title=Special:RecentChanges", title)


@contextlib.contextmanager
def web_server(port):
    """The port of nginx in front of php-fpm."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path("nginx.conf").read_text()
        for word, value in (("FOLDER", folder), ("LISTEN", listen), ("PORT", port), ("WIKI", WIKI)):
            text = re.sub(rf"\b{word}\b", str(value), text)
        file = pathlib.Path(folder) / "nginx.conf"
        file.write_text(text)
        path = f"{os.environ['PATH']}:/usr/sbin"
        nginx = subprocess.Popen(["nginx", "-c", file], env=os.environ | {"PATH": path})
        try:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", listen)):
                    break
                if nginx.poll() is not None:
                    raise SystemExit("Error: nginx has ended")
                time.sleep(0.05)
            yield listen
        finally:
            nginx.terminate()
            nginx.wait()


def main():
    failed = []

    def attempt(port, number):
        try:
            work(port, number)
        except Exception as error:  # noqa: BLE001: whatever it is, it is told at the end
            failed.append(error)

    with web_server(int(sys.argv[1])) as port:
        threads = [threading.Thread(target=attempt, args=(port, n)) for n in range(USERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in failed:
        print(error, file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
