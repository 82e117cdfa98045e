"""Robyn reads requests in threads of its own, in Rust, and calls functions in Python, in a loop or in threads, of which it was told.

So a request says its number in its head, as it does with Granian, and each such function finds it there. The head that one of
them is given is the next one's as well: the number is out of it only as long as a function is at work.
"""

import functools
import os

from hindcast_granian import HEADER, RESERVED, SAYS, number
from hindcast_pools import CONNECTIONS

NAME = HEADER.decode()
# Of what a process is started with, how many workers it has.
WORKERS = 8


def begin(hooks, replace, request, serves, in_turn):
    def told(real):
        @functools.wraps(real, updated=())
        def FunctionInfo(handler, is_async, number_of_params, *more):
            os.pwrite(RESERVED, b"", SAYS)
            # A function without parameters would be given no request.
            takes = (lambda given: given) if number_of_params else (lambda given: ())
            made = in_loop if is_async else in_thread
            return real(made(handler, takes), is_async, max(number_of_params, 1), *more)

        return FunctionInfo

    def in_loop(handler, takes):
        @functools.wraps(handler)
        async def within(*given, **named):
            serves()
            one, said = taken_out(given)
            if said:
                request.set(number(said))
            try:
                return await handler(*takes(given), **named)
            finally:
                put_back(one, said)

        return within

    def in_thread(handler, takes):
        @functools.wraps(handler)
        def within(*given, **named):
            one, said = taken_out(given)
            try:
                if not said:
                    return handler(*takes(given), **named)
                return in_turn(number(said), handler, *takes(given), **named)
            finally:
                put_back(one, said)

        return within

    def process(real):
        def spawn_process(*given):
            given = list(given)
            given[WORKERS] = max(given[WORKERS], CONNECTIONS)
            return real(*given)

        return spawn_process

    hooks["robyn.processpool"] = lambda module: replace(module, "spawn_process", process)
    hooks["robyn.router"] = lambda module: replace(module, "FunctionInfo", told)


def taken_out(given):
    """Of what a function is called with: the request, which has another head from here on, and what it has said."""
    for one in given:
        if type(one).__name__ != "Request":
            continue
        head = one.headers
        said = head.get(NAME)
        if said:
            # Nothing can be removed from a head.
            one.headers = type(head)({})
            for name, value in head.multi_items():
                if name != NAME:
                    one.headers.append(name, value)
            return one, said
    return None, None


def put_back(one, said):
    if said:
        one.headers.set(NAME, said)
