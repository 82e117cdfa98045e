"""Lists notes as they are kept in caches of the process: WSGI in threads.

    gunicorn shown:app --threads 8        the database is in DATABASE_URL, and in FOR how many seconds a list is kept

POST /WAY/NAME adds a note, and has the cache of that way forget its list at every third one. GET /WAY answers the list of that way, and how often that
has been asked for. Ways: `locmem` of Django, `simple` of cachelib, `function`, whose results cachetools keeps, and `method`, which is one of an object.
"""

import json
import os
import threading

import cachelib
import cachetools
import psycopg2
from django.conf import settings
from django.core.cache import cache as locmem

FRESH = float(os.environ["FOR"])

settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}})
simple = cachelib.SimpleCache()


def sql(statement, *values):
    connection = psycopg2.connect(os.environ["DATABASE_URL"])
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchone()
    finally:
        connection.close()


def read():
    notes, at = sql("SELECT count(*), clock_timestamp()::text FROM note")
    return [notes, at]


@cachetools.cached(cachetools.TTLCache(10, FRESH), lock=threading.RLock())
def function(_):
    return read()


class Lists:
    def __init__(self):
        self.cache, self.lock = cachetools.LRUCache(10), threading.RLock()

    @cachetools.cachedmethod(lambda self: self.cache, lock=lambda self: self.lock)
    def method(self, _):
        return read()


lists = Lists()


def from_locmem():
    try:
        asked = locmem.incr("asked")
    except ValueError:
        asked = 1 if locmem.add("asked", 1, 2 * FRESH) else 0
    return [locmem.get_or_set("list", read, FRESH), asked, "other" in locmem]


def from_simple():
    kept = simple.get("list")
    if kept is None:
        kept = read()
        simple.set("list", kept)
    return [kept, simple.inc("asked"), simple.has("other")]


def forget(way):
    if way == "locmem":
        return locmem.delete("list")
    if way == "simple":
        return simple.delete("list")
    if way == "function":
        with function.cache_lock:
            return function.cache.pop(function.cache_key("of all"), None)
    if way == "method":
        with lists.lock:
            return lists.cache.clear()
    raise KeyError(way)


ways = {
    "locmem": from_locmem,
    "simple": from_simple,
    "function": lambda: function("of all"),
    "method": lambda: lists.method("of all"),
}


def app(environ, start_response):
    way, *names = environ["PATH_INFO"].strip("/").split("/")
    if names:
        number = sql("INSERT INTO note DEFAULT VALUES RETURNING id")[0]
        answer = [number, str(forget(way)) if number % 3 == 0 else None]
    else:
        answer = ways[way]()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
