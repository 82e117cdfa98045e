"""Notes of people who log in: FastAPI and a pool of asyncpg in one event loop, at READ COMMITTED.

    notes_async.py PORT        the database is in DATABASE_URL

POST /login/NAME makes a session, whose token is a cookie, and answers with what writing takes. POST /note/TEXT writes a note, and GET /notes
lists them, for who has a session that has not expired.
"""

import datetime
import os
import random
import secrets
import sys
import time
import uuid
from contextlib import asynccontextmanager

import asyncpg
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response

LIFETIME = datetime.timedelta(seconds=float(os.environ["LIFETIME"]))


def now():
    return datetime.datetime.now(datetime.timezone.utc)


@asynccontextmanager
async def lifespan(app):
    # It opens more connections while requests wait for them.
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=20) as app.state.pool:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/login/{name}")
async def log_in(name: str, response: Response):
    token, csrf, expires = secrets.token_urlsafe(24), secrets.token_hex(8), now() + LIFETIME
    insert = "INSERT INTO session (token, csrf, person, expires) VALUES ($1, $2, $3, $4)"
    await app.state.pool.execute(insert, token, csrf, name, expires)
    response.set_cookie("session", token)
    return {"csrf": csrf, "until": expires.timestamp()}


async def session_of(connection, request):
    select = "SELECT person, csrf FROM session WHERE token = $1 AND expires > $2"
    found = await connection.fetchrow(select, request.cookies.get("session"), now())
    if found is None:
        raise HTTPException(401)
    return found


@app.post("/note/{text}")
async def write(text: str, request: Request):
    async with app.state.pool.acquire() as connection, connection.transaction():
        session = await session_of(connection, request)
        if session["csrf"] != request.headers.get("x-csrf"):
            raise HTTPException(401)
        number = await connection.fetchval("UPDATE counter SET n = n + 1 RETURNING n")
        note = uuid.uuid4()
        insert = "INSERT INTO note (id, person, text, number, written) VALUES ($1, $2, $3, $4, $5)"
        await connection.execute(insert, note, session["person"], text, number, now())
        # asyncpg takes TLS wherever a server offers it.
        encrypted = connection._con._transport.get_extra_info("sslcontext") is not None
    lots = [random.random(), random.randrange(10**9), random.gauss(0, 1), *random.sample(range(1000), 3)]
    return {"note": note, "number": number, "at": time.time_ns(), "today": time.ctime(), "lots": lots, "encrypted": encrypted}


@app.get("/notes")
async def notes(request: Request):
    async with app.state.pool.acquire() as connection:
        session = await session_of(connection, request)
        select = "SELECT id, text, number, written FROM note WHERE person = $1 ORDER BY number"
        return [dict(row) for row in await connection.fetch(select, session["person"])]


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
