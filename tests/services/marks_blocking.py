"""Every request writes rows with its own name, in coroutines that call drivers which are not asyncio's: the loop stands still meanwhile.

    uvicorn marks_blocking:app        the database is in DATABASE_URL

A request asks, lets others go on and asks again, and each has a connection of its own. What it reads tells who was before it.
"""

import asyncio
import os
import queue

import psycopg
import psycopg2
from fastapi import FastAPI

URL = os.environ["DATABASE_URL"]
ISOLATION = r"-c default_transaction_isolation=repeatable\ read"
INSERT = "INSERT INTO mark VALUES (%s, %s)"
idle = {psycopg: queue.LifoQueue(), psycopg2: queue.LifoQueue()}
app = FastAPI()


async def mark(driver, name):
    try:
        connection = idle[driver].get_nowait()
    except queue.Empty:
        connection = driver.connect(URL, options=ISOLATION)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM mark")
        before = cursor.fetchone()[0]
        cursor.execute(INSERT, (name, 1))
        await asyncio.sleep(0.001)
        cursor.execute(INSERT, (name, 2))
    connection.commit()
    idle[driver].put(connection)
    return [name, before]


@app.post("/psycopg2/{name}")
async def with_psycopg2(name: str):
    return await mark(psycopg2, name)


@app.post("/psycopg/{name}")
async def with_psycopg(name: str):
    return await mark(psycopg, name)
