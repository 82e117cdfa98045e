"""Every request writes rows with its own name: WSGI in threads of a server that reads requests in others. Nothing here knows of tracing.

    granian --interface wsgi marks_wsgi:app        the database is in DATABASE_URL

The answer has the names of the request's headers, which are its client's and no recorder's.
"""

import os
import threading

import psycopg2

INSERT = "INSERT INTO mark VALUES (%s, %s)"
own = threading.local()


def app(environ, start_response):
    name = environ["PATH_INFO"].rsplit("/", 1)[-1]
    if not hasattr(own, "connection"):
        own.connection = psycopg2.connect(os.environ["DATABASE_URL"])
    with own.connection, own.connection.cursor() as cursor:
        for step in (1, 2):
            cursor.execute(INSERT, (name, step))
    headers = sorted(key for key in environ if key.startswith("HTTP_"))
    is_clients = not any("HINDCAST" in key for key in headers)
    start_response("200 OK" if is_clients else "500 Not the client's", [("Content-Type", "text/plain")])
    return [" ".join(headers).encode()]
