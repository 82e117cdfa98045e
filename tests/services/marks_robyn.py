"""Every request writes rows with its own name, in Robyn's loop and in its threads. Nothing here knows of tracing.

    python marks_robyn.py PORT [PROCESSES]        the database is in DATABASE_URL

What is called before each request asks the database as well, and shows that the head is as it came.
"""

import os
import sys

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from robyn import Response, Robyn

URL = os.environ["DATABASE_URL"]
sys.argv[1:], port, processes = [], int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "1"
app = Robyn(__file__)
app.config.processes = int(processes)
INSERT = "INSERT INTO mark VALUES (%s, %s)"
pools = {}


@app.startup_handler
async def begin():
    pools["loop"] = AsyncConnectionPool(URL, min_size=1, max_size=4, open=False)
    await pools["loop"].open()
    pools["threads"] = ConnectionPool(URL, min_size=1, max_size=4, open=True)


def is_as_it_came(request):
    return not any("hindcast" in name.lower() for name in request.headers.keys())


@app.before_request()
async def before(request):
    if not is_as_it_came(request):
        return Response(500, {}, "the head is not as it came")
    async with pools["loop"].connection() as connection:
        await connection.execute(INSERT, (request.url.path.rsplit("/", 1)[1], 0))
    return request


@app.post("/loop/:name")
async def loop(request):
    name = request.path_params["name"]
    async with pools["loop"].connection() as connection:
        for step in (1, 2):
            await connection.execute(INSERT, (name, step))
    return name if is_as_it_came(request) else "not as it came"


@app.post("/thread/:name")
def thread(name: str):
    with pools["threads"].connection() as connection:
        for step in (1, 2):
            connection.execute(INSERT, (name, step))
    return name


@app.get("/")
def nothing():
    """It is given no request."""
    with psycopg.connect(URL) as connection:
        return str(connection.execute("SELECT count(*) FROM mark").fetchone())


app.start(host="127.0.0.1", port=port)
