"""Granian reads requests in threads of its own, in Rust, and serves them in Python, where of a connection nothing is known but who is
at the other end.

    recorded   the tap knows by that which request it has brought
    replayed   several connections may seem to be of one client: a request says its number in a header, which is taken out

WSGI is served in threads, and says nothing of the other end's port: when it is recorded it has no turn.
"""

import functools
import os

RESERVED = 0x48494E44
PEERS = 13 << 32
RETURNED = 1 << 40
MAPPED = bytes(10) + b"\xff\xff"
HEADER = "hindcast-request"


def begin(hooks, replace, request, serves):
    def served(number_of):
        def wrapper(real):
            from asyncio import current_task

            @functools.wraps(real)
            def _callback_wrapper(*args, **kwargs):
                os.pwrite(RESERVED, b"", PEERS)
                serve = real(*args, **kwargs)

                @functools.wraps(serve)
                def within(scope, proto):
                    serves()
                    number = number_of(scope)
                    # Its own tasks have one context for all.
                    if type(current_task()).__name__ != "_CBSchedulerTask":
                        request.set(number)
                    return serve(scope, proto)

                return within

            return _callback_wrapper

        return lambda module: replace(module, "_callback_wrapper", wrapper)

    hooks["granian.asgi"] = served(of_asgi)
    hooks["granian.rsgi"] = served(of_rsgi)


def of_asgi(scope):
    name = HEADER.encode()
    said = [value for header, value in scope.get("headers", ()) if header == name]
    if said:
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != name]
        return number_in(said[0])
    return number_from(scope.get("client"))


def of_rsgi(scope):
    said = scope.headers.get(HEADER)
    return number_in(said) if said else number_from(scope.client.rsplit(":", 1))


def number_in(said):
    return int(said, 16).to_bytes(8, "little")


def number_from(client):
    from socket import AF_INET, AF_INET6, inet_pton

    try:
        host, port = client
        address = inet_pton(AF_INET6, host) if ":" in host else MAPPED + inet_pton(AF_INET, host)
        answered = os.pwrite(RESERVED, address + int(port).to_bytes(2, "big"), RETURNED + PEERS)
    except (TypeError, ValueError, OSError):
        # It came by a Unix socket.
        return None
    return max(answered - 1, 0).to_bytes(8, "little")
