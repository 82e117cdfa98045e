"""Tells the tap on whose behalf Python speaks to its database, where an event loop serves requests.

    data of a connection arrives ──▶ its request is in the context, of which tasks get copies
    greenlets are switched ────────▶ the thread works for the request of the one that runs
    work is handed to a thread ────▶ the thread works for the request of who hands it over
    a driver writes ───────────────▶ the request is told of the connection
    random bytes are drawn ────────▶ the thread works for the context's request until they are
    the clock is read ─────────────▶ the tap looks into the context itself

Nothing is told before a loop of asyncio or uvloop serves, or a server of greenlets: threads that read their requests themselves
are known without. Without the tap it does nothing. TLS and HTTP/2 have no turn.
"""

import functools
import os
import sys
import threading
import zlib
from contextvars import ContextVar

import hindcast_caches
import hindcast_files
import hindcast_granian
import hindcast_pools
import hindcast_random
import hindcast_robyn
import hindcast_stopwatch
import hindcast_waiting

RESERVED = 0x48494E44
# Where the tap is told which variable has the request, and what code draws.
PYTHON = 3 << 32
CALLER = 4 << 32
# Where the tap says for which request this thread hands work to another one.
IN_HAND = 5 << 32
# Bytes of a key.
KEY = 32
NOBODY = bytes(8)

# The number of the request that is worked on: eight bytes, as the tap has it.
REQUEST = ContextVar("hindcast_request", default=None)

serves = False
# Whether greenlets are switched.
switches = False
# The descriptors of protocols' connections.
descriptors = {}


def request_of(descriptor):
    return os.pread(RESERVED, 8, descriptor)


def tell_of(descriptor):
    """What is written to this descriptor from here on is for this context's request."""
    if serves:
        os.pwrite(RESERVED, REQUEST.get() or b"", descriptor)


# Of a thread: what was told of it.
told = threading.local()


def in_turn(*args, **kwargs):
    """Calls a function in a thread that works for a request, or apart from it: then a key is behind the number."""
    turn, work = args[:2]
    token = REQUEST.set(turn[: len(NOBODY)])
    told.turn = turn
    os.write(RESERVED, turn)
    try:
        return work(*args[2:], **kwargs)
    finally:
        told.turn = b""
        os.write(RESERVED, b"")
        REQUEST.reset(token)


def descriptor_of(transport):
    """Of a connection that is not encrypted."""
    socket = transport.get_extra_info("socket")
    if socket is None or transport.get_extra_info("sslcontext") is not None:
        return None
    return socket.fileno()


def replace(owner, name, make):
    """Puts what `make` makes of a function in its place, once."""
    real = getattr(owner, name, None)
    if real is None or getattr(real, "_hindcast", False):
        return
    made = make(real)
    made._hindcast = True
    made.__wrapped__ = real
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        try:
            setattr(made, attribute, getattr(real, attribute))
        except AttributeError:
            pass
    setattr(owner, name, made)


# Servers.


def loop_serves():
    global serves
    serves = True
    # What a loop does for no request is nobody's.
    os.write(RESERVED, NOBODY)
    os.pwrite(RESERVED, id(REQUEST).to_bytes(8, "little"), PYTHON)


def serves_if_needed():
    if not serves:
        loop_serves()


def server(real):
    def serve(self, protocol_factory, *args, **kwargs):
        loop_serves()

        def factory():
            protocol = protocol_factory()
            watch(type(protocol))
            return protocol

        return real(self, factory, *args, **kwargs)

    return serve


def watch(protocol):
    """Of a class of protocols: sets the request while data is received."""
    try:
        replace(protocol, "connection_made", connection_made)
        replace(protocol, "connection_lost", connection_lost)
        replace(protocol, "data_received", data_received)
    except TypeError:
        # A class that cannot be changed.
        pass


def connection_made(real):
    def made(self, transport):
        descriptors[id(self)] = descriptor_of(transport)
        return real(self, transport)

    return made


def connection_lost(real):
    def lost(self, error):
        descriptors.pop(id(self), None)
        return real(self, error)

    return lost


def data_received(real):
    def received(self, data):
        descriptor = descriptors.get(id(self))
        request = None if descriptor is None else request_of(descriptor)
        token = REQUEST.set(request)
        try:
            return real(self, data)
        finally:
            REQUEST.reset(token)

    return received


def loop(owner):
    for name in ("create_server", "create_unix_server", "connect_accepted_socket"):
        replace(owner, name, server)


def streams(module):
    """What serves with streams works for the request that it has read."""

    def made(real):
        def connection_made(self, transport):
            if getattr(self, "_client_connected_cb", None) is not None:
                self._stream_reader._hindcast_descriptor = descriptor_of(transport)
            return real(self, transport)

        return connection_made

    async def reading(descriptor, what):
        data = await what
        REQUEST.set(request_of(descriptor))
        return data

    def read(real):
        def read(self, *args, **kwargs):
            descriptor = getattr(self, "_hindcast_descriptor", None)
            what = real(self, *args, **kwargs)
            return what if descriptor is None else reading(descriptor, what)

        return read

    replace(module.StreamReaderProtocol, "connection_made", made)
    # The other ways to read are made of these.
    for name in ("read", "readexactly", "readuntil"):
        replace(module.StreamReader, name, read)


def aiohttp(module):
    """One task serves a connection, which is made before the first request."""

    async def handling(request, work):
        REQUEST.set(request)
        return await work

    def handle(real):
        def handle(self, *args, **kwargs):
            work = real(self, *args, **kwargs)
            descriptor = descriptors.get(id(self))
            return work if descriptor is None else handling(request_of(descriptor), work)

        return handle

    replace(module.RequestHandler, "_handle_request", handle)


def uvicorn(module):
    """A request that comes before the last answer of its connection is over is begun when that is.

    Its task is made in the context of the one before it then, though the client had all that it waits
    for: who streams an answer says by itself that it has ended.
    """

    def init(real):
        def init(self, *args, **kwargs):
            real(self, *args, **kwargs)
            descriptor = descriptor_of(self.transport)
            self._hindcast_request = None if descriptor is None else request_of(descriptor)

        return init

    def run(real):
        async def run_asgi(self, app):
            if self._hindcast_request is not None:
                REQUEST.set(self._hindcast_request)
            return await real(self, app)

        return run_asgi

    replace(module.RequestResponseCycle, "__init__", init)
    replace(module.RequestResponseCycle, "run_asgi", run)


class Within:
    """What Tornado gives a message to: it is called for the request that has come by a descriptor."""

    def __init__(self, delegate, descriptor):
        self._delegate = delegate
        self._descriptor = descriptor

    def _call(self, work, *args):
        token = REQUEST.set(request_of(self._descriptor))
        try:
            return work(*args)
        finally:
            REQUEST.reset(token)

    def headers_received(self, *args):
        return self._call(self._delegate.headers_received, *args)

    def data_received(self, *args):
        return self._call(self._delegate.data_received, *args)

    def finish(self):
        return self._call(self._delegate.finish)

    def __getattr__(self, name):
        return getattr(self._delegate, name)


def tornado(module):
    """It reads sockets itself. A handler is a task that is made when its message has come."""

    def read(real):
        def read_message(self, delegate, *args, **kwargs):
            socket = getattr(self.stream, "socket", None)
            if self.is_client or socket is None or hasattr(socket, "getpeercert"):
                return real(self, delegate, *args, **kwargs)
            if not serves:
                loop_serves()
            return real(self, Within(delegate, socket.fileno()), *args, **kwargs)

        return read_message

    replace(module.HTTP1Connection, "_read_message", read)


def sanic(module):
    """One task serves a connection, which is made before the first request. It makes each request when its head has come.

    Methods of the server itself are compiled anew when that starts, from their sources.
    """

    def init(real):
        def init(self, *args, **kwargs):
            real(self, *args, **kwargs)
            descriptor = descriptor_of(self.transport)
            if descriptor is not None:
                REQUEST.set(request_of(descriptor))

        return init

    replace(module.Request, "__init__", init)


def waitress(module):
    """One thread reads all requests, and others answer them, one each."""

    def service(real):
        def service(self, *args, **kwargs):
            return in_turn(request_of(self.socket.fileno()), real, self, *args, **kwargs)

        return service

    replace(module.HTTPChannel, "service", service)


# Twisted. Its coroutines have contexts as those of asyncio. What it calls later is called for who asks for it.


def within(request, work, *args, **kwargs):
    token = REQUEST.set(request)
    try:
        return work(*args, **kwargs)
    finally:
        REQUEST.reset(token)


def twisted(module):
    def received(real):
        def _dataReceived(self, data):
            serves_if_needed()
            return within(request_of(self.fileno()), real, self, data)

        return _dataReceived

    replace(module.Server, "_dataReceived", received)


def reactor(module):
    def later(real):
        def callLater(self, delay, *args, **kwargs):
            request = REQUEST.get()
            work = args if request is None else (within, request, *args)
            return real(self, delay, *work, **kwargs)

        return callLater

    def from_thread(real):
        def callFromThread(self, *args, **kwargs):
            request = REQUEST.get()
            work = args if request is None else (within, request, *args)
            return real(self, *work, **kwargs)

        return callFromThread

    replace(module.ReactorBase, "callLater", later)
    replace(module.ReactorBase, "callFromThread", from_thread)


def twisted_threads(module):
    def call(real):
        def callInThreadWithCallback(self, result, *args, **kwargs):
            request = REQUEST.get()
            if not serves or request is None:
                return real(self, result, *args, **kwargs)
            told = result and functools.partial(within, request, result)
            return real(self, told, in_turn, request, *args, **kwargs)

        return callInThreadWithCallback

    replace(module.ThreadPool, "callInThreadWithCallback", call)
    # Each connection of its pools has a thread.
    for name in ("__init__", "adjustPoolsize"):
        replace(module.ThreadPool, name, hindcast_pools.twisted_pool)


# Greenlets. One thread works for all requests, and changes between them where it would wait. Each greenlet
# has a context. What it writes, draws and reads of the clock is the thread's, whatever the driver.


def watch_switches():
    """Has the thread say whose turn it is at each switch."""
    global switches
    switches = True
    greenlet = sys.modules["greenlet"]
    before = greenlet.gettrace()
    if getattr(before, "_hindcast", False):
        return

    def switched(event, args):
        os.write(RESERVED, REQUEST.get() or spawned_for(args[1]) or NOBODY)
        if before is not None:
            before(event, args)

    switched._hindcast = True
    greenlet.settrace(switched)


def spawned_for(greenlet):
    """The request that a greenlet of gevent was spawned for, which has a context of its own."""
    told = getattr(greenlet, "spawn_tree_locals", None)
    request = told and told.get(SPAWNED)
    if request:
        # The context is this greenlet's by now.
        REQUEST.set(request)
    return request


# Gevent gives it to all greenlets that are spawned from one.
SPAWNED = "hindcast request"


def in_greenlet(socket, work, *args, **kwargs):
    """Calls what serves a request that has come by a socket."""
    if hasattr(socket, "getpeercert"):
        return work(*args, **kwargs)
    watch_switches()
    request = request_of(socket.fileno())
    token = REQUEST.set(request)
    current = sys.modules["greenlet"].getcurrent()
    told = getattr(current, "spawn_tree_locals", NOBODY)
    if told is not NOBODY:
        current.spawn_tree_locals = {**(told or {}), SPAWNED: request}
    os.write(RESERVED, request)
    try:
        return work(*args, **kwargs)
    finally:
        if told is not NOBODY:
            current.spawn_tree_locals = told
        REQUEST.reset(token)
        os.write(RESERVED, NOBODY)


def gunicorn(module):
    def handle(real):
        def handle_request(self, listener_name, req, sock, *args, **kwargs):
            return in_greenlet(sock, real, self, listener_name, req, sock, *args, **kwargs)

        return handle_request

    replace(module.AsyncWorker, "handle_request", handle)


def pywsgi(module):
    def handle(real):
        def handle_one_response(self, *args, **kwargs):
            return in_greenlet(self.socket, real, self, *args, **kwargs)

        return handle_one_response

    replace(module.WSGIHandler, "handle_one_response", handle)


# Threads. One that a request starts works for it, and so does what it hands to a pool of them.


def apart():
    """For the request that this thread works on and apart from it, by a key that the request draws; `None`: for none."""
    if switches:
        # Who spawns a greenlet is known.
        return None
    request = at_work()
    return request and request + os.urandom(KEY)


def at_work():
    """The request that this thread works on; `None`: it works on none."""
    request = REQUEST.get() if serves else os.pread(RESERVED, len(NOBODY), IN_HAND)
    return None if not request or request == NOBODY else request


def start(real):
    def start(self):
        turn = apart() if is_for_a_request(self) else None
        if turn is not None:
            work = self.run

            def run():
                # Or the thread would hold itself.
                vars(self).pop("run", None)
                in_turn(turn, work)

            self.run = run
        return real(self)

    return start


def is_for_a_request(thread):
    """Not a thread that waits for work of others.

    Python's own libraries start some for their pools, and other libraries for as long as the process lives.
    """
    work = getattr(type(thread), "run", None)
    if work is threading.Thread.run:
        work = getattr(thread, "_target", None)
    elif work is threading.Timer.run:
        work = getattr(thread, "function", None)
    while isinstance(work, functools.partial):
        work = work.func
    code = getattr(work, "__code__", None) or getattr(type(work).__call__, "__code__", None)
    path = getattr(code, "co_filename", "")
    return not is_of_library(path) and not (thread.daemon and "-packages/" in path)


def submit(real):
    def submit(*args, **kwargs):
        hindcast_pools.executor(args[0])
        # A loop waits for what it hands over.
        turn = REQUEST.get() if serves else apart()
        if turn is None:
            return real(*args, **kwargs)
        return real(args[0], in_turn, turn, *args[1:], **kwargs)

    return submit


def run_sync(real):
    def run(*args, **kwargs):
        request = REQUEST.get()
        if not serves or request is None:
            return real(*args, **kwargs)
        return real(in_turn, request, *args, **kwargs)

    return run


# Drivers that write in the loop.


class Telling:
    """A transport, which tells before it is written to."""

    __slots__ = ("_transport", "_descriptor")

    def __init__(self, transport):
        self._transport = transport
        self._descriptor = transport.get_extra_info("socket").fileno()

    def write(self, data):
        tell_of(self._descriptor)
        self._transport.write(data)

    def writelines(self, data):
        tell_of(self._descriptor)
        self._transport.writelines(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


def outside(real):
    """What makes a connection draws for none: it may be made for another request in a replay."""

    async def connect(*args, **kwargs):
        token = REQUEST.set(None)
        try:
            return await real(*args, **kwargs)
        finally:
            REQUEST.reset(token)

    return connect


def asyncpg(real):
    return lambda self, transport: real(self, Telling(transport))


def psycopg(real):
    def wait(self, *args, **kwargs):
        try:
            tell_of(self.pgconn.socket)
        except Exception:
            # It is not connected, which psycopg will find out.
            pass
        return real(self, *args, **kwargs)

    return wait


# Randomness.


def drawing(real):
    """Python lets others run while it draws, and the tap cannot look then."""

    def draw(*args, **kwargs):
        request = REQUEST.get() if serves else None
        is_told = request is not None and in_loop()
        os.pwrite(RESERVED, caller(sys._getframe(1)), CALLER)
        if is_told:
            os.write(RESERVED, request)
        try:
            drawn = hindcast_random.drawn = real(*args, **kwargs)
            return drawn
        finally:
            if is_told:
                os.write(RESERVED, NOBODY)
            os.pwrite(RESERVED, b"", CALLER)

    return draw


def caller(frame):
    """A hash of the function that asks, and of the innermost one of another file that it works for, but for those of
    Python's own library. As the tap has it where it can look: see `crates/tap/src/python/frames.rs`.
    """
    codes = []
    for _ in range(FRAMES):
        if frame is None:
            break
        code = frame.f_code
        file = code.co_filename
        if not is_of_library(file) and not (codes and codes[0].co_filename == file):
            codes.append(code)
            if len(codes) == 2:
                break
        frame = frame.f_back
    codes = tuple(codes)
    hashed = hashes.get(codes)
    if hashed is None:
        names = " ".join(f"{end_of_path(one.co_filename)} {one.co_name}" for one in codes)
        hashed = zlib.crc32(names.encode(errors="replace")).to_bytes(8, "little")
        if len(hashes) >= HASHES_MAX:
            hashes.clear()
        hashes[codes] = hashed
    return hashed


FRAMES = 16
# The shim's own.
FOLDER = os.path.dirname(__file__)
# By code. Some programs make code without end.
hashes = {}
HASHES_MAX = 4096


def is_of_library(path):
    return path.startswith(FOLDER) or path[:1] == "<" or "/lib/python3" in path and "-packages/" not in path


def end_of_path(path):
    """A file and its folder. What is in front of them may be another one for changed code."""
    return "/".join(path.split("/")[-2:])


def in_loop():
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return True
    # A reactor of Twisted need not be a loop of asyncio.
    threadable = sys.modules.get("twisted.python.threadable")
    reactor = getattr(threadable, "ioThread", None)
    return reactor is not None and reactor == threading.get_ident()


class Aside:
    """A module of clocks, whose readings are no request's.

    A pool looks at the time once more for a connection that it makes than for one that it has.
    """

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)

    def time(self):
        request = REQUEST.get()
        token = REQUEST.set(None)
        os.write(RESERVED, NOBODY)
        try:
            return self._module.time()
        finally:
            REQUEST.reset(token)
            if not (serves and in_loop()):
                # A thread that was told of no request works on what it has read.
                os.write(RESERVED, getattr(told, "turn", b"") or request or b"")


def sqlalchemy_clock(module):
    module.time = Aside(module.time)


# What is done to a module when it has been loaded.
HOOKS = {
    "asyncio.base_events": lambda module: loop(module.BaseEventLoop),
    "asyncio.unix_events": lambda module: loop(module._UnixSelectorEventLoop),
    "asyncio.streams": streams,
    "uvloop": lambda module: loop(module.Loop),
    "aiohttp.web_protocol": aiohttp,
    "uvicorn.protocols.http.h11_impl": uvicorn,
    "uvicorn.protocols.http.httptools_impl": uvicorn,
    "tornado.http1connection": tornado,
    "sanic.request.types": sanic,
    "waitress.channel": waitress,
    "twisted.internet.tcp": twisted,
    "twisted.internet.base": reactor,
    "twisted.python.threadpool": twisted_threads,
    "gunicorn.workers.base_async": gunicorn,
    "gevent.pywsgi": pywsgi,
    "concurrent.futures.thread": lambda module: replace(
        module.ThreadPoolExecutor, "submit", submit
    ),
    "anyio.to_thread": lambda module: replace(module, "run_sync", run_sync),
    "asyncpg.connect_utils": lambda module: replace(module, "_connect", outside),
    "asyncpg.protocol": lambda module: replace(module.Protocol, "connection_made", asyncpg),
    "random": hindcast_random.own,
    "sqlalchemy.pool.base": sqlalchemy_clock,
    "psycopg.connection": lambda module: replace(module.Connection, "wait", psycopg),
    "psycopg.connection_async": lambda module: replace(module.AsyncConnection, "wait", psycopg),
}


class Finder:
    """Finds nothing itself; what others find is hooked."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        hook = HOOKS.pop(name, None)
        if hook is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is Finder or find is None else find(name, path, target)
            if spec is not None:
                return hooked(spec, hook)
        return None


def hooked(spec, hook):
    execute = getattr(spec.loader, "exec_module", None)

    def exec_module(module):
        execute(module)
        call(hook, module)

    # What is built in has a class for a loader, which is all such modules'.
    if execute is not None and not isinstance(spec.loader, type):
        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            pass
    return spec


def call(hook, module):
    try:
        hook(module)
    except Exception:
        # Another version than is known here: then it has no turn.
        pass


def replace_everywhere(owner, name, make):
    """As `replace`, and where modules have taken the function from its owner."""
    real = getattr(owner, name, None)
    replace(owner, name, make)
    for module in list(sys.modules.values()):
        for known, value in list(getattr(module, "__dict__", {}).items()):
            if value is real is not None:
                setattr(module, known, getattr(owner, name))


def begin():
    try:
        os.pread(RESERVED, 8, 0)
    except OSError:
        return
    sys.meta_path.insert(0, Finder)
    if hindcast_pools.CONNECTIONS:
        hindcast_waiting.begin(HOOKS, replace)
    hindcast_caches.begin(HOOKS, replace, at_work, in_loop)
    hindcast_files.begin(HOOKS, replace)
    hindcast_granian.begin(HOOKS, replace, REQUEST, serves_if_needed, in_turn)
    hindcast_pools.begin(HOOKS, replace)
    hindcast_robyn.begin(HOOKS, replace, REQUEST, serves_if_needed, in_turn)
    hindcast_stopwatch.begin()
    # From here on the tap looks at what code draws.
    os.pwrite(RESERVED, bytes(8), PYTHON)
    for name in ("urandom", "getrandom"):
        replace_everywhere(os, name, drawing)
    replace(threading.Thread, "start", start)
    # Packages may have code that runs before this, by a file `*.pth`.
    for name in HOOKS.keys() & sys.modules.keys():
        call(HOOKS.pop(name), sys.modules[name])


begin()
