"""Notes of people who log in, for uWSGI with processes and threads, at READ COMMITTED.

POST /login/NAME makes a session, whose token is a cookie, and answers with what writing takes. POST /note/TEXT writes
a note, and GET /notes lists them, for who has a session that has not expired. The database is in $DATABASE_URL.
"""

import datetime
import http.cookies
import json
import os
import secrets
import threading
import uuid

import psycopg

LIFETIME = datetime.timedelta(seconds=float(os.environ["LIFETIME"]))
local = threading.local()


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def connection():
    if not hasattr(local, "connection"):
        local.connection = psycopg.connect(os.environ["DATABASE_URL"])
    return local.connection


def session(c, env):
    cookies = http.cookies.SimpleCookie(env.get("HTTP_COOKIE", ""))
    token = cookies["session"].value if "session" in cookies else ""
    select = "SELECT person, csrf FROM session WHERE token = %s AND expires > %s"
    return c.execute(select, (token, now())).fetchone()


def work(c, what, text, env, sent):
    if what == "login":
        token, csrf, expires = secrets.token_hex(24), secrets.token_hex(8), now() + LIFETIME
        insert = "INSERT INTO session (token, csrf, person, expires) VALUES (%s, %s, %s, %s)"
        c.execute(insert, (token, csrf, text, expires))
        return {"csrf": csrf, "until": str(expires)}, [("Set-Cookie", f"session={token}")]
    found = session(c, env)
    if found is None:
        return None, []
    person, csrf = found
    if what == "note":
        if csrf != env.get("HTTP_X_CSRF"):
            return None, []
        (number,) = c.execute("UPDATE counter SET n = n + 1 RETURNING n").fetchone()
        note = uuid.uuid4()
        insert = "INSERT INTO note (id, person, text, number, written) VALUES (%s, %s, %s, %s, %s)"
        c.execute(insert, (note, person, text, number, now()))
        return {"note": str(note), "number": number, "sent": sent}, []
    select = "SELECT id, text, number, written FROM note WHERE person = %s ORDER BY number"
    return [[str(column) for column in row] for row in c.execute(select, (person,))], []


def application(env, start):
    what, text = (env["PATH_INFO"][1:].split("/") + [""])[:2]
    # uWSGI resets a connection of which something is unread.
    sent = len(env["wsgi.input"].read())
    with connection().transaction():
        answer, headers = work(connection(), what, text, env, sent)
    body = json.dumps(answer).encode()
    status = "401 Unauthorized" if answer is None else "200 OK"
    start(status, [("Content-Type", "application/json"), *headers])
    return [body]
