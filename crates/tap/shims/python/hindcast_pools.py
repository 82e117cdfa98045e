"""How large the pools of Python's servers and drivers are in a replay: hindcast_turns.py has them made so.

More requests may hold a connection, or a thread, and wait than originally, and what they wait for
needs one: a pool is as large as that takes.
"""

import os

# 0: as large as the service wants.
CONNECTIONS = int(os.environ.get("HINDCAST_POOL") or 0)


def twisted_pool(real):
    def size(self, *args, **kwargs):
        real(self, *args, **kwargs)
        self.max = max(self.max, CONNECTIONS)

    return size


def psycopg_pool(real):
    def sizes(self, *args, **kwargs):
        least, most = real(self, *args, **kwargs)
        return least, max(most, CONNECTIONS)

    return sizes


def asyncpg_pool(real):
    def init(self, *args, **kwargs):
        if kwargs.get("max_size"):
            kwargs["max_size"] = max(kwargs["max_size"], CONNECTIONS)
        real(self, *args, **kwargs)

    return init


def sqlalchemy_pool(real):
    # Not where it is made: SQLAlchemy reads from there which arguments it takes.
    def get(self):
        if self._max_overflow >= 0:
            self._max_overflow = max(self._max_overflow, CONNECTIONS - self._pool.maxsize)
        return real(self)

    return get


def waitress_pool(real):
    def size(self, count):
        real(self, as_large_as_needed(count))

    return size


def cheroot_pool(real):
    def init(self, *args, **kwargs):
        real(self, *args, **kwargs)
        self.min = as_large_as_needed(self.min)
        self.max = max(self.max, self.min)

    return init


# Of what a worker of Granian's is made of, how many threads in Python it has.
GRANIAN_THREADS = 5


def granian_threads(real):
    def worker(*args):
        given = list(args)
        given[GRANIAN_THREADS] = as_large_as_needed(given[GRANIAN_THREADS])
        return real(*given)

    return worker


def executor(pool):
    pool._max_workers = as_large_as_needed(getattr(pool, "_max_workers", 1))


def as_large_as_needed(threads):
    """In a replay work begins in another order, and what must end first may be behind what waits for it.

    A pool of one thread is there for the order.
    """
    return max(threads, CONNECTIONS) if threads > 1 else threads


def begin(hooks, replace):
    """Has this done to modules when they are loaded."""

    def sized(owner, name, make):
        return lambda module: replace(getattr(module, owner), name, make)

    hooks["waitress.task"] = sized("ThreadedTaskDispatcher", "set_thread_count", waitress_pool)
    hooks["cheroot.workers.threadpool"] = sized("ThreadPool", "__init__", cheroot_pool)
    for module in ("mp", "mt"):
        hooks[f"granian.server.{module}"] = lambda module: replace(
            module, "WSGIWorker", granian_threads
        )
    hooks["psycopg_pool.base"] = sized("BasePool", "_check_size", psycopg_pool)
    hooks["asyncpg.pool"] = sized("Pool", "__init__", asyncpg_pool)
    hooks["sqlalchemy.pool.impl"] = sized("QueuePool", "_do_get", sqlalchemy_pool)
