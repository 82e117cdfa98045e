"""Granian reads requests in threads of its own, in Rust, and serves them in Python, where nothing is known of the connection. So a
request says its number in its head, and that is taken out here.

RSGI gives an application the headers as Rust has them, so there nothing is put into them, and its requests have no turn.
"""

import functools
import os

RESERVED = 0x48494E44
SAYS = 13 << 32
HEADER = b"hindcast-request"
IN_WSGI = "HTTP_HINDCAST_REQUEST"
DIGITS = 16


def begin(hooks, replace, request, serves, in_turn):
    def served(serving):
        def wrapper(real):
            @functools.wraps(real)
            def _callback_wrapper(*args, **kwargs):
                os.pwrite(RESERVED, b"", SAYS)
                serve = real(*args, **kwargs)
                return functools.wraps(serve)(serving(serve))

            return _callback_wrapper

        return lambda module: replace(module, "_callback_wrapper", wrapper)

    def asgi(serve):
        from asyncio import current_task

        def within(scope, proto):
            serves()
            number = taken_out(scope)
            # Its own tasks have one context for all.
            if type(current_task()).__name__ != "_CBSchedulerTask":
                request.set(number)
            return serve(scope, proto)

        return within

    def wsgi(serve):
        def within(proto, scope):
            said = scope.pop(IN_WSGI, None)
            return in_turn(number(said), serve, proto, scope) if said else serve(proto, scope)

        return within

    hooks["granian.asgi"] = served(asgi)
    hooks["granian.wsgi"] = served(wsgi)


def taken_out(scope):
    headers = scope.get("headers", ())
    said = [value for name, value in headers if name == HEADER]
    if not said:
        return None
    scope["headers"] = [pair for pair in headers if pair[0] != HEADER]
    return number(said[0])


def number(said):
    return int(said[:DIGITS], 16).to_bytes(8, "little")
