"""What requests see in caches of Python's processes: hindcast_turns.py has it told, and shown again in a replay.

    recorded   a request puts something there ─▶ it has a number, which is told
               a request looks there ──────────▶ the number of what it sees is told
    replayed   a request puts something there ─▶ it is kept by the number that it had
               a request looks there ──────────▶ it is given what has the number that it saw

A thread waits for what is not there yet. Where it holds a lock of the cache meanwhile, who puts it there would need that lock: so
it waits before it takes one that is known.
"""

import os
import struct
import threading
import time
import zlib

import hindcast_pools

RESERVED = 0x48494E44
SEEN = 7 << 32
# Where `pwrite` returns what is answered, plus one.
PUTS, AGAIN, PUT, SEES_NEXT = ((1 << 40) + (place << 32) for place in (6, 7, 8, 11))
# There was nothing; there was something, and it is not known who put it there.
NOTHING = 0
UNKNOWN = 1
# So many things are known by their numbers, the latest that were put.
KEPT_MAX = 1 << 16
# So often a request looks or puts something there, and it is told.
LOOKS_MAX = 1000
# So long one is waited for, in milliseconds, and once. Changed code may not put it there.
WAIT = 5000
# The same where a lock may be held, or where it is not known whether any request puts it there.
WAIT_LOCKED = 1000

replays = hindcast_pools.CONNECTIONS > 0
kept = {}
missed = set()
# Set by `begin`: the number of the request at work in eight bytes, and whether a loop's thread is.
current = in_loop = None


class Local(threading.local):
    # What this thread looks at, what it has read there, and whether it does so within a cache's own code.
    slot = None
    read = None
    inside = False
    # For whom it has looked last, and how often.
    looked_for = None
    looks = 0


local = Local()


class Slot:
    """A place in a cache, for the request at work."""

    __slots__ = ("turn", "cache", "key")

    def __init__(self, turn, cache, key):
        self.turn = turn
        self.cache = cache
        self.key = key

    def ask(self, what, value=0):
        """`None`: there is no answer."""
        answer = os.pwrite(RESERVED, self.packed(value), what) - 1
        return None if answer < 0 else answer

    def packed(self, value):
        return self.turn + struct.pack("<QQQ", self.cache, self.key, value)

    def put(self, value):
        """Returns the number of what the request puts there."""
        number = self.ask(PUTS) if replays or self.is_told() else None
        if replays and number:
            remember(kept, number, value)
        return number or UNKNOWN

    def is_told(self):
        if local.looked_for != self.turn:
            local.looked_for, local.looks = self.turn, 0
        local.looks += 1
        return local.looks <= LOOKS_MAX

    def saw(self, number):
        if self.is_told():
            os.pwrite(RESERVED, self.packed(number), SEEN)

    def again(self):
        """In a replay: the number of what the request saw there; `UNKNOWN` if that is not known."""
        number = self.ask(AGAIN)
        return UNKNOWN if number is None else number

    def wait_for(self, number, most):
        """What has this number, in a tuple; `None`: it is not there, and does not come."""
        if number not in kept and (number in missed or not self.ask(PUT, number)):
            return None
        return come(number, most)


def slot_of(name, key):
    turn = current()
    return turn and Slot(turn, hash_of(name), hash_of(key))


def hash_of(text):
    return zlib.crc32(text.encode(errors="replace"))


def remember(known, key, value):
    known[key] = value
    if len(known) > KEPT_MAX:
        known.pop(next(iter(known)), None)


def come(number, most):
    for _ in range(1 if in_loop() else most):
        if number in kept:
            return (kept[number],)
        # As the process has it by now: gevent has a `sleep` of its own.
        time.sleep(0.001)
    missed.add(number)
    return None


def wait_for_next():
    """In a replay, before a lock is taken: for what the request sees next."""
    turn = current()
    number = os.pwrite(RESERVED, turn, SEES_NEXT) - 1 if turn else NOTHING
    if number > UNKNOWN and number not in kept and number not in missed:
        come(number, WAIT_LOCKED)


def outcome(slot, real):
    """Whether a request does what it wants to there, as with `add`: as it was."""
    result = real()
    if slot is None:
        return result
    if not replays:
        slot.saw(1 if result else 0)
        return result
    again = slot.ask(AGAIN)
    return result if again is None or bool(again) == bool(result) else bool(again)


# Caches that keep what they have in bytes: these have the numbers.


class Pickled(bytes):
    number = UNKNOWN


class Pickles:
    """In the place of what makes bytes of values."""

    def __init__(self, real):
        self._real = real

    def dumps(self, *args, **kwargs):
        slot = local.slot
        pickled = Pickled(self._real.dumps(*args, **kwargs))
        if slot is not None:
            pickled.number = slot.put(pickled)
        return pickled

    def loads(self, pickled, *args, **kwargs):
        local.read = pickled
        return self._real.loads(pickled, *args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._real, name)


def at(slot, work):
    """Calls what puts something there, or looks there."""
    before, local.slot = local.slot, slot
    try:
        return work()
    finally:
        local.slot = before


def look(slot, real, nothing, found):
    """Calls `real`, or in a replay `nothing`, or `found` with the bytes that the request saw."""
    if slot is None:
        return at(None, real)
    if not replays:
        local.read = None
        try:
            return at(slot, real)
        finally:
            read, local.read = local.read, None
            slot.saw(NOTHING if read is None else getattr(read, "number", UNKNOWN))
    number = slot.again()
    if number == NOTHING:
        return nothing()
    seen = slot.wait_for(number, WAIT) if number > UNKNOWN else None
    return at(slot, real) if seen is None else at(slot, lambda: found(seen[0]))


def django(module):
    cache = module.LocMemCache

    def of(self, key, version, kind=""):
        return slot_of(f"django {getattr(self, '_hindcast_name', None)}", kind + str(self.make_key(key, version=version)))

    def init(real):
        def __init__(self, name, params):
            self._hindcast_name = name
            real(self, name, params)

        return __init__

    def get(real):
        def get(self, key, default=None, version=None):
            return look(
                of(self, key, version),
                lambda: real(self, key, default, version),
                lambda: default,
                lambda pickled: module.pickle.loads(pickled),
            )

        return get

    def incr(real):
        def incr(self, key, delta=1, version=None):
            def nothing():
                raise ValueError(f"Key '{self.make_key(key, version=version)}' not found")

            def found(pickled):
                value = module.pickle.loads(pickled) + delta
                module.pickle.dumps(value, getattr(self, "pickle_protocol", module.pickle.HIGHEST_PROTOCOL))
                return value

            return look(of(self, key, version), lambda: real(self, key, delta, version), nothing, found)

        return incr

    def puts(real):
        def set(self, key, value, timeout=module.DEFAULT_TIMEOUT, version=None):
            return at(of(self, key, version), lambda: real(self, key, value, timeout, version))

        return set

    def adds(real):
        added = puts(real)

        def add(self, key, *args, **kwargs):
            version = args[2] if len(args) > 2 else kwargs.get("version")
            return outcome(of(self, key, version, "+"), lambda: added(self, key, *args, **kwargs))

        return add

    def does(kind):
        def wrap(real):
            def does(self, key, *args, **kwargs):
                version = args[-1] if len(args) > (kind == "~") else kwargs.get("version")
                return outcome(of(self, key, version, kind), lambda: real(self, key, *args, **kwargs))

            return does

        return wrap

    module.pickle = Pickles(module.pickle)
    ways = {"__init__": init, "get": get, "incr": incr, "set": puts, "add": adds}
    kinds = {"has_key": does("?"), "delete": does("-"), "touch": does("~")}
    return cache, {**ways, **kinds}


def cachelib(module):
    cache = module.SimpleCache

    def of(self, key, kind=""):
        return slot_of(f"cachelib {self._threshold} {self.default_timeout}", kind + str(key))

    def get(real):
        def get(self, key):
            pickles = getattr(self, "serializer", None) or module.pickle
            if not isinstance(pickles, Pickles):
                return real(self, key)
            return look(of(self, key), lambda: real(self, key), lambda: None, lambda pickled: pickles.loads(pickled))

        return get

    def puts(real):
        return lambda self, key, *args, **kwargs: at(of(self, key), lambda: real(self, key, *args, **kwargs))

    def adds(real):
        added = puts(real)
        return lambda self, key, *args, **kwargs: outcome(
            of(self, key, "+"), lambda: within(added, self, key, *args, **kwargs)
        )

    def does(kind):
        def wrap(real):
            return lambda self, key: real(self, key) if local.inside else outcome(of(self, key, kind), lambda: real(self, key))

        return wrap

    def counts(name):
        # In a replay without its lock, which who puts there what is to be seen would need.
        base = getattr(cache.__mro__[1], name, None)

        def wrap(real):
            return lambda self, *args, **kwargs: (base if replays and base else real)(self, *args, **kwargs)

        return wrap

    if hasattr(cache, "serializer"):
        cache.serializer = Pickles(cache.serializer)
    else:
        module.pickle = Pickles(module.pickle)
    ways = {"get": get, "set": puts, "add": adds, "has": does("?"), "delete": does("-")}
    return cache, {**ways, "inc": counts("inc"), "dec": counts("dec")}


def within(work, *args, **kwargs):
    """Calls a cache's own code, in which it looks into itself."""
    before, local.inside = local.inside, True
    try:
        return work(*args, **kwargs)
    finally:
        local.inside = before


# Caches that keep the objects themselves: the numbers are by their keys. Who uses them in threads has a lock.

PLAIN = {"builtins", "datetime", "decimal", "uuid"}


def text_of(key):
    """Of a key, without what is another one in each process, and without asking what a program has made."""
    kind = type(key)
    if isinstance(key, tuple):
        return f"({','.join(map(text_of, key))})"
    if isinstance(key, frozenset):
        return f"{{{','.join(sorted(map(text_of, key)))}}}"
    if kind.__module__ in PLAIN and kind is not object and not callable(key):
        return repr(key)
    return getattr(key, "__qualname__", kind.__qualname__)


def cachetools(module):
    cache = module.Cache
    missing = cache.__missing__

    def of(self, key, kind=""):
        if local.inside or type(self).__missing__ is not missing:
            return None
        name = f"{type(self).__qualname__} {self.maxsize} {getattr(self, 'ttl', None)}"
        return slot_of(name, kind + text_of(key))

    def numbers(self):
        return vars(self).setdefault("_hindcast_numbers", {})

    def get(real):
        def __getitem__(self, key, *args):
            slot = of(self, key)
            if slot is None:
                return real(self, key, *args)
            if not replays:
                number = NOTHING
                try:
                    value = within(real, self, key, *args)
                    number = numbers(self).get(key, UNKNOWN)
                    return value
                finally:
                    slot.saw(number)
            number = slot.again()
            if number == NOTHING:
                raise KeyError(key)
            seen = slot.wait_for(number, WAIT_LOCKED) if number > UNKNOWN else None
            return within(real, self, key, *args) if seen is None else seen[0]

        return __getitem__

    def puts(real):
        def __setitem__(self, key, value, *args):
            slot = of(self, key)
            number = UNKNOWN if slot is None else slot.put(value)
            within(real, self, key, value, *args)
            if not local.inside:
                remember(numbers(self), key, number)

        return __setitem__

    def has(real):
        def __contains__(self, key):
            slot = of(self, key, "?")
            is_there = within(real, self, key)
            if slot is None:
                return is_there
            if not replays:
                # It is likely to be looked at next.
                slot.saw(numbers(self).get(key, UNKNOWN) if is_there else NOTHING)
                return is_there
            number = slot.again()
            if number == NOTHING or number in kept or is_there:
                return number != NOTHING
            return number > UNKNOWN and number not in missed and come(number, WAIT_LOCKED) is not None

        return __contains__

    def deletes(real):
        def __delitem__(self, key, *args):
            def delete():
                try:
                    within(real, self, key, *args)
                except KeyError:
                    return False
                return True

            if not outcome(of(self, key, "-"), delete):
                raise KeyError(key)

        return __delitem__

    def pops(real):
        return lambda self, *args: within(real, self, *args)

    ways = {"__getitem__": get, "__setitem__": puts, "__contains__": has, "__delitem__": deletes}
    if replays:
        wait_before_locks(module)
    return cache, {**ways, "popitem": pops, "expire": pops}


class Lock:
    """Waits for what is seen next, and is taken then."""

    def __init__(self, real):
        self._real = real

    def __enter__(self):
        wait_for_next()
        return self._real.__enter__()

    def __exit__(self, *args):
        return self._real.__exit__(*args)

    def __getattr__(self, name):
        return getattr(self._real, name)


def wait_before_locks(module):
    """Those that functions take whose results are kept."""

    def cached(real):
        def cached(cache, *args, **kwargs):
            # Behind the key.
            args = (*args[:1], *(map(waits, args[1:2])), *args[2:])
            named = {name: waits(one) if name in ("lock", "condition") else one for name, one in kwargs.items()}
            return real(cache, *args, **named)

        return cached

    def waits(lock):
        if lock is None or isinstance(lock, bool):
            return lock
        if hasattr(lock, "__enter__"):
            return Lock(lock)
        # Of methods it is found by the object.
        return lambda *args: Lock(lock(*args)) if callable(lock) else lock

    for name in ("cached", "cachedmethod"):
        module.__dict__[name] = cached(module.__dict__[name])


def functions(module):
    """`cachetools.func` makes locks itself."""
    lock = getattr(module, "RLock", None)
    if replays and lock is not None:
        module.RLock = lambda: Lock(lock())


def begin(hooks, replace, turn, is_loop):
    """Has this done to modules when they are loaded."""
    global current, in_loop
    current, in_loop = turn, is_loop

    def told(package):
        def hook(module):
            cache, ways = package(module)
            classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, cache)]
            for owner in classes:
                for name in ways.keys() & vars(owner).keys():
                    replace(owner, name, ways[name])

        return hook

    hooks["django.core.cache.backends.locmem"] = told(django)
    hooks["cachelib.simple"] = told(cachelib)
    hooks["cachetools"] = told(cachetools)
    hooks["cachetools.func"] = functions
