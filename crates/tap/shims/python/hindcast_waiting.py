"""Lets a loop go on while a coroutine waits for its database: hindcast_turns.py has it done in a replay.

Who calls psycopg2 in a coroutine, or psycopg without `await`, makes the loop stand still until the database has answered. In a
replay an answer may be held until another request has asked, which the same loop does not serve meanwhile. So each step of a task
runs where it can stop (hindcast_steps.py), and where an answer does not come soon the task awaits it.

    loop ──▶ task ──▶ Steps.send ──▶ step: the coroutine ──▶ the driver waits for its socket
                  ◀── a future of that socket ◀────────────────┘

What comes soon is waited for as ever, so that others do not come in between where they did not.
"""

import select
import sys
import threading
from collections.abc import Coroutine

import hindcast_steps

# In milliseconds.
SOON = 5

# Drivers of which connections are made where loops run, or before.
used = set()
is_set = False


def is_loops_thread():
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


# What steps run in, once there are loops.
Step = None


class Steps(Coroutine):
    """A coroutine whose steps may wait for a socket."""

    def __init__(self, coroutine):
        self._coroutine = coroutine
        # The one that waits.
        self._step = None
        self._context = None

    def send(self, value):
        if self._step is not None:
            return self._goes_on(self._step, self._step.switch)
        return self._begin(self._coroutine.send, value)

    def throw(self, *error):
        if self._step is not None:
            return self._goes_on(self._step, self._step.throw, *error)
        return self._begin(self._coroutine.throw, *error)

    def close(self):
        self._coroutine.close()

    def __await__(self):
        return self._coroutine.__await__()

    def __getattr__(self, name):
        return getattr(self._coroutine, name)

    def _begin(self, work, *args):
        use_psycopg2()
        self._context = self._context or Step.context()
        step = Step(work, self._context)
        return self._goes_on(step, step.switch, *args)

    def _goes_on(self, step, switch, *args):
        self._step = None
        awaited = switch(*args)
        if not step.dead:
            self._step = step
        elif step.late is not None:
            # It would have come here, where the coroutine lets others go on.
            if awaited is not None:
                awaited.cancel()
            return self._begin(self._coroutine.throw, step.late)
        return awaited


def this_step():
    return Step and Step.current()


def until_ready(descriptor, events):
    """Waits for a socket, and returns what it is ready for."""
    poll = select.poll()
    poll.register(descriptor, events)
    step = this_step()
    if step is None:
        return poll.poll()[0][1]
    ready = poll.poll(SOON)
    while not ready:
        try:
            await_socket(step, descriptor, events)
        except BaseException as error:
            # A driver has no use for that.
            step.late = error
        ready = poll.poll(0)
    return ready[0][1]


def await_socket(step, descriptor, events):
    loop = sys.modules["asyncio"]._get_running_loop()
    future = loop.create_future()

    def is_ready():
        if not future.done():
            future.set_result(None)

    if events & select.POLLIN:
        loop.add_reader(descriptor, is_ready)
    if events & select.POLLOUT:
        loop.add_writer(descriptor, is_ready)
    # As who awaits it says.
    future._asyncio_future_blocking = True
    try:
        step.suspend(future)
    finally:
        if events & select.POLLIN:
            loop.remove_reader(descriptor)
        if events & select.POLLOUT:
            loop.remove_writer(descriptor)


def may_wait():
    """Whether coroutines may. With psycopg most await it, and a thread is worse for them than a greenlet."""
    is_greenlet = Step is not hindcast_steps.InThread
    return "psycopg2" in sys.modules or "psycopg" in used or is_greenlet and "psycopg" in sys.modules


def factory(loop, coroutine, **kwargs):
    task = sys.modules["asyncio"].Task
    if isinstance(coroutine, Coroutine) and may_wait():
        coroutine = Steps(coroutine)
    return task(coroutine, loop=loop, **kwargs)


def set_running(real):
    """A loop that makes tasks as loops do makes them of steps."""

    def run(loop):
        if loop is not None and loop.get_task_factory() is None:
            loop.set_task_factory(factory)
        return real(loop)

    return run


# Drivers.


def connecting(driver):
    def wrap(real):
        def connect(*args, **kwargs):
            if is_loops_thread() or threading.current_thread() is threading.main_thread():
                used.add(driver)
            if this_step() is not None:
                # What this step does next may wait as well.
                use_psycopg2()
            return real(*args, **kwargs)

        return connect

    return wrap


def use_psycopg2():
    """Has psycopg2 wait as is said here, once a loop runs tasks and who uses it may be one of them.

    It takes no COPY from then on, so where only threads use it, it is left alone.
    """
    global is_set
    if is_set or "psycopg2" not in used:
        return
    is_set = True
    extensions = sys.modules["psycopg2.extensions"]
    if extensions.get_wait_callback() is None:
        extensions.set_wait_callback(psycopg2_wait)


def psycopg2_wait(connection):
    extensions = sys.modules["psycopg2.extensions"]
    events = {extensions.POLL_READ: select.POLLIN, extensions.POLL_WRITE: select.POLLOUT}
    while True:
        state = connection.poll()
        if state == extensions.POLL_OK:
            return
        until_ready(connection.fileno(), events[state])


def psycopg_wait(real):
    """What psycopg has a generator say that it waits for; it is 1 to read and 2 to write there."""

    def wait(self, generator, *args, **kwargs):
        if this_step() is None:
            return real(self, generator, *args, **kwargs)
        try:
            wanted = next(generator)
            while True:
                reads, writes = wanted & 1, wanted & 2
                events = (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0)
                ready = until_ready(self.pgconn.socket, events)
                is_readable = reads and ready & ~select.POLLOUT
                is_writable = writes and ready & ~select.POLLIN
                wanted = generator.send((1 if is_readable else 0) | (2 if is_writable else 0))
        except StopIteration as end:
            return end.value

    return wait


def begin(hooks, replace):
    """Has this done to modules when they are loaded."""
    tell = hooks["psycopg.connection"]

    def events(module):
        global Step
        Step = hindcast_steps.kind()
        replace(module, "_set_running_loop", set_running)

    def psycopg(module):
        module.Connection.wait = psycopg_wait(module.Connection.wait)
        connect = connecting("psycopg")(module.Connection.connect.__func__)
        module.Connection.connect = classmethod(connect)
        tell(module)

    hooks["asyncio.events"] = events
    hooks["psycopg2"] = lambda module: replace(module, "connect", connecting("psycopg2"))
    hooks["psycopg.connection"] = psycopg
