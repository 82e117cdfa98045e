"""Every request writes rows with its own name: an event loop with three drivers, and threads. Nothing here knows of tracing.

    uvicorn marks:app        the database is in DATABASE_URL, the size of each pool in POOL

A loop serves many requests at a time, and there are fewer connections than requests, so they wait for each other.
"""

import asyncio
import contextlib
import os
import queue

import asyncpg
import psycopg2
from fastapi import BackgroundTasks, FastAPI
from fastapi.responses import StreamingResponse
from psycopg_pool import AsyncConnectionPool

URL = os.environ["DATABASE_URL"]
POOL = int(os.environ.get("POOL", "3"))
# Whoever needs a connection in a thread takes the one that was used last, or makes one.
idle = queue.LifoQueue()


@contextlib.asynccontextmanager
async def lifespan(app):
    async with asyncpg.create_pool(URL, min_size=1, max_size=POOL) as app.asyncpg:
        async with AsyncConnectionPool(URL, min_size=1, max_size=POOL, open=False) as app.psycopg:
            yield


app = FastAPI(lifespan=lifespan)


@app.post("/loop/{name}")
async def loop(name: str):
    async with app.asyncpg.acquire() as connection, connection.transaction():
        await connection.execute("INSERT INTO mark VALUES ($1, 1)", name)
        await asyncio.sleep(0.001)
        await connection.execute("INSERT INTO mark VALUES ($1, 2)", name)
    return name


@app.post("/gather/{name}")
async def gather(name: str):
    query = "INSERT INTO mark VALUES ($1, $2)"
    await asyncio.gather(*(app.asyncpg.execute(query, name, step) for step in range(2)))
    return await app.asyncpg.fetchval("SELECT count(*) FROM mark WHERE name = $1", name)


@app.post("/psycopg/{name}")
async def psycopg(name: str):
    async with app.psycopg.connection() as connection:
        for step in range(2):
            await connection.execute("INSERT INTO mark VALUES (%s, %s)", (name, step))
    return name


@app.post("/thread/{name}")
def thread(name: str):
    try:
        connection = idle.get_nowait()
    except queue.Empty:
        connection = psycopg2.connect(URL)
    with connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO mark VALUES (%s, 1)", (name,))
        cursor.execute("INSERT INTO mark VALUES (%s, 2)", (name,))
    idle.put(connection)
    return name


@app.post("/executor/{name}")
async def executor(name: str):
    return await asyncio.get_running_loop().run_in_executor(None, thread, name)


@app.post("/after/{name}")
async def after(name: str, tasks: BackgroundTasks):
    tasks.add_task(loop, name)
    return name


@app.post("/stream/{name}")
async def stream(name: str):
    """Its client has all of the answer before that is over, and asks again."""

    async def answer():
        yield name.encode()
        await asyncio.sleep(0.02)

    await loop(name)
    return StreamingResponse(answer(), headers={"Content-Length": str(len(name))})
