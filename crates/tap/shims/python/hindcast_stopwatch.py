"""What code in Python measures with, `time.perf_counter`: hindcast_turns.py has it ask the tap.

How long something took is in pages, headers and rows. What waits goes by `time.monotonic`, which
stays as it is.
"""

import functools
import time

# A clock that the tap knows.
CLOCK = 0x48494E44


def begin():
    try:
        time.clock_gettime(CLOCK)
    except OSError:
        return
    reads = {"perf_counter": time.clock_gettime, "perf_counter_ns": time.clock_gettime_ns}
    for name, read in reads.items():
        own = functools.partial(read, CLOCK)
        own.__name__ = own.__qualname__ = name
        own.__module__ = "time"
        own.__doc__ = getattr(time, name).__doc__
        setattr(time, name, own)
