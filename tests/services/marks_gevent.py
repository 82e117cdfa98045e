"""Every request writes rows with its own name: WSGI in greenlets of gevent, and psycopg2, which waits in these.

    gunicorn marks_gevent:app -k gevent        the database is in DATABASE_URL
"""

import os

import gevent
import psycopg2
from psycogreen.gevent import patch_psycopg

INSERT = "INSERT INTO mark VALUES (%s, %s)"

patch_psycopg()


def one(name, *steps):
    connection = psycopg2.connect(os.environ["DATABASE_URL"])
    try:
        with connection, connection.cursor() as cursor:
            for step in steps:
                cursor.execute(INSERT, (name, step))
    finally:
        connection.close()


def app(environ, start_response):
    way, name = environ["PATH_INFO"].strip("/").split("/")
    if way == "transaction":
        one(name, 1, 2)
    else:
        # Two greenlets of its own, at a time.
        gevent.joinall([gevent.spawn(one, name, step) for step in (1, 2)], raise_error=True)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [name.encode()]
