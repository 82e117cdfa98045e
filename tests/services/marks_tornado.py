"""Every request writes rows with its own name: Tornado, and a pool of psycopg that is smaller than the load, or one
connection of psycopg2, for which the loop waits.

    python marks_tornado.py PORT        the database is in DATABASE_URL
"""

import asyncio
import os
import signal
import sys

import psycopg2
import tornado.web
from psycopg_pool import AsyncConnectionPool

INSERT = "INSERT INTO mark VALUES (%s, %s)"


class Mark(tornado.web.RequestHandler):
    async def post(self, way, name):
        pool = self.application.pool
        if way == "transaction":
            async with pool.connection() as connection:
                await connection.execute(INSERT, (name, 1))
                await connection.execute(INSERT, (name, 2))
        elif way == "blocking":
            self.wait_for(name, (1, 2))
        elif way == "interleaved":
            for step in (1, 2):
                # Another request goes on here, with the same connection.
                await asyncio.sleep(0)
                self.wait_for(name, (step,))
        else:
            await asyncio.gather(*[self.one(pool, name, step) for step in (1, 2)])
        self.write(name)

    def wait_for(self, name, steps):
        with self.application.connection as connection, connection.cursor() as cursor:
            for step in steps:
                cursor.execute(INSERT, (name, step))

    async def one(self, pool, name, step):
        async with pool.connection() as connection:
            await connection.execute(INSERT, (name, step))


async def main():
    application = tornado.web.Application([(r"/(\w+)/(\S+)", Mark)])
    application.pool = AsyncConnectionPool(os.environ["DATABASE_URL"], min_size=1, max_size=3, open=False)
    await application.pool.open()
    application.connection = psycopg2.connect(os.environ["DATABASE_URL"])
    application.listen(int(sys.argv[1]), "127.0.0.1")
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    await interrupted.wait()
    # A second one is nothing new.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One that is not closed may still connect, and what does is waited for.
    await application.pool.close()


if __name__ == "__main__":
    asyncio.run(main())
