"""Runs code that may stop in the middle and go on later: in a greenlet, or where that package lacks, in a thread.

    step.switch(*args) ──▶ work(*args) ──▶ step.suspend(value)
          value ◀─────────────────────────────────┘
    step.switch()      ──▶                  goes on
          result ◀── returns

Who switches waits meanwhile, so that one of them runs at a time.
"""

import _thread
import os
import sys
import threading
from contextvars import copy_context

# The step that a thread runs.
running = threading.local()
# Threads that have none: each waits for its lock, and takes the step beside it.
idle = []


def kind():
    try:
        from greenlet import getcurrent, greenlet
    except ImportError:
        return InThread

    class InGreenlet(greenlet):
        # What was thrown at it where it could not be told.
        late = None

        def __init__(self, work, _context):
            super().__init__(work)
            self.gr_context = getcurrent().gr_context

        def suspend(self, value):
            self.parent.switch(value)

        @staticmethod
        def context():
            return None

        @staticmethod
        def current():
            current = getcurrent()
            return current if isinstance(current, InGreenlet) else None

    return InGreenlet


class InThread:
    """One that the loop's thread waits for. It takes what a loop has in its thread along."""

    late = None
    dead = False

    def __init__(self, work, context):
        self._work = lambda *args: context.run(work, *args)
        self._goes_on = None
        self._stops = locked()
        self._thrown = self._error = self._value = None

    # A task's context cannot be entered while its own thread is in it.
    context = staticmethod(copy_context)

    @staticmethod
    def current():
        return getattr(running, "step", None)

    def switch(self, *args):
        if self._goes_on is None:
            self._goes_on = locked()
            asyncio = sys.modules["asyncio"]
            self._loop = asyncio._get_running_loop()
            self._task = asyncio.current_task(self._loop)
            begin(self, args)
        else:
            self._goes_on.release()
        self._stops.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._value

    def throw(self, error, value=None, traceback=None):
        self._thrown = error() if isinstance(error, type) and value is None else value or error
        return self.switch()

    def suspend(self, value):
        self._value = value
        self._stops.release()
        self._goes_on.acquire()
        thrown, self._thrown = self._thrown, None
        if thrown is not None:
            raise thrown

    def run(self, args):
        """In a thread that has nothing else to do."""
        running.step = self
        enter(self._loop, self._task)
        try:
            self._value = self._work(*args)
        except BaseException as error:
            self._error = error
        finally:
            leave(self._loop, self._task)
            running.step = None
            self.dead = True


def locked():
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock


def begin(step, args):
    try:
        thread = idle.pop()
    except IndexError:
        thread = [locked(), None]
        # Not as a thread of the service's.
        _thread.start_new_thread(serve, (thread,))
    thread[1] = step, args
    thread[0].release()


def serve(thread):
    turns = sys.modules["hindcast_turns"]
    os.write(turns.RESERVED, turns.NOBODY)
    while True:
        thread[0].acquire()
        step, args = thread[1]
        thread[1] = None
        step.run(args)
        idle.append(thread)
        stops, step, args = step._stops, None, None
        stops.release()


def enter(loop, task):
    asyncio = sys.modules["asyncio"]
    asyncio._set_running_loop(loop)
    sys.set_asyncgen_hooks(
        firstiter=getattr(loop, "_asyncgen_firstiter_hook", None),
        finalizer=getattr(loop, "_asyncgen_finalizer_hook", None),
    )
    # Before, there was one for each loop, and not for each thread.
    if sys.version_info >= (3, 14) and task is not None:
        asyncio._enter_task(loop, task)


def leave(loop, task):
    asyncio = sys.modules["asyncio"]
    if sys.version_info >= (3, 14) and task is not None:
        asyncio._leave_task(loop, task)
    asyncio._set_running_loop(None)
