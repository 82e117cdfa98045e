"""Every request writes rows with its own name: Twisted, and psycopg2 in its threads. It is answered with what the reactor draws.

    python marks_twisted.py PORT        the database is in DATABASE_URL
"""

import os
import secrets
import sys

from twisted.enterprise import adbapi
from twisted.internet import defer, reactor, task
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

INSERT = "INSERT INTO mark VALUES (%s, %s)"

pool = adbapi.ConnectionPool("psycopg2", os.environ["DATABASE_URL"], cp_min=1, cp_max=3)


def write(name, *steps):
    def insert(cursor):
        for step in steps:
            cursor.execute(INSERT, (name, step))

    return pool.runInteraction(insert)


async def coroutine(name):
    await write(name, 1, 2)
    await task.deferLater(reactor, 0.001, lambda: None)
    await write(name, 3)


def callbacks(name):
    done = write(name, 1)
    done.addCallback(lambda _: write(name, 2))
    done.addCallback(lambda _: task.deferLater(reactor, 0.001, write, name, 3))
    return done


def answer(name):
    drawn = {secrets.token_hex(8) for _ in range(3)}
    assert len(drawn) == 3
    return " ".join([name, *sorted(drawn)]).encode()


class Mark(Resource):
    isLeaf = True

    def render_POST(self, request):
        way, name = (part.decode() for part in request.postpath)
        done = callbacks(name) if way == "callbacks" else defer.ensureDeferred(coroutine(name))
        done.addCallback(lambda _: request.write(answer(name)))
        done.addErrback(lambda failure: request.setResponseCode(500))
        done.addCallback(lambda _: request.finish())
        return NOT_DONE_YET


reactor.listenTCP(int(sys.argv[1]), Site(Mark()), interface="127.0.0.1")
reactor.run()
