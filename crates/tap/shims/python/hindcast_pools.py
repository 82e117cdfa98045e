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


def executor(pool):
    """In a replay tasks begin in another order, and one that must end first may be behind those that wait for it.

    A pool of one thread is there for the order.
    """
    most = getattr(pool, "_max_workers", 1)
    if CONNECTIONS and most > 1:
        pool._max_workers = max(most, CONNECTIONS)
