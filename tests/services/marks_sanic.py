"""Every request writes rows with its own name: Sanic, and a pool of asyncpg that is smaller than the load.

    python marks_sanic.py PORT        the database is in DATABASE_URL

A task serves a connection from its beginning on.
"""

import asyncio
import os
import sys

import asyncpg
from sanic import Sanic, text

INSERT = "INSERT INTO mark VALUES ($1, $2)"

app = Sanic("marks")


@app.before_server_start
async def open_pool(app):
    app.ctx.pool = await asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=3)


@app.post("/transaction/<name>")
async def transaction(request, name):
    async with app.ctx.pool.acquire() as connection, connection.transaction():
        await connection.execute(INSERT, name, 1)
        await asyncio.sleep(0.001)
        await connection.execute(INSERT, name, 2)
    return text(name)


@app.post("/gather/<name>")
async def gather(request, name):
    await asyncio.gather(*(app.ctx.pool.execute(INSERT, name, step) for step in (1, 2)))
    return text(name)


if __name__ == "__main__":
    app.run("127.0.0.1", int(sys.argv[1]), access_log=False)
