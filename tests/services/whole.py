"""One thread reads from all connections, and serves a request when all of it has come. Nothing here knows of tracing.

    python whole.py PORT        the database is in DATABASE_URL
"""

import os
import selectors
import socket
import sys

import psycopg

connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
selector = selectors.DefaultSelector()
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
selector.register(listener, selectors.EVENT_READ)


def serve(client, head):
    name = head.split(b" ", 2)[1].rsplit(b"/", 1)[1].decode()
    for step in range(2):
        connection.execute("INSERT INTO mark VALUES (%s, %s)", (name, step))
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(name), name.encode()))


def is_all(so_far):
    head, end, body = so_far.partition(b"\r\n\r\n")
    fields = (line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:])
    return bool(end) and len(body) >= int(dict(fields).get(b"content-length", 0))


while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            selector.register(listener.accept()[0], selectors.EVENT_READ, bytearray())
            continue
        piece = key.fileobj.recv(4096)
        if not piece:
            selector.unregister(key.fileobj)
            key.fileobj.close()
            continue
        key.data.extend(piece)
        if is_all(bytes(key.data)):
            serve(key.fileobj, bytes(key.data))
            key.data.clear()
