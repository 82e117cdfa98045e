"""A recording in ranges that can be replayed by themselves."""

import dataclasses
import socket
import time
from json import loads

from hindcast._command import HindcastError, options, run, run_to_end


@dataclasses.dataclass(frozen=True)
class Window:
    """The requests `from_` to `to`. Nothing is in flight when it begins, and the database can be had as of then."""

    from_: str
    to: str
    requests: int
    arrived_us: int
    ended_us: int


@dataclasses.dataclass(frozen=True)
class Ran:
    """What became of a window. `outcome` is "same", "different" or "failed"; `json` is the verdict or report as the command printed it."""

    from_: str
    to: str
    requests: int
    outcome: str
    seconds: float
    host: str
    error: str | None
    json: str | None


def windows(trace, size=10_000, **given):
    """Windows of `size` requests or a few more, by `hindcast windows`: they can be replayed side by side, anywhere."""
    said = run("windows", "--json", "--trace", trace, f"--size={size}", *options(given))
    return [Window(from_=line.pop("from"), **line) for line in map(loads, said.splitlines())]


def run_window(window, trace, command="replay", more=(), **given):
    """Replays one, or retroacts with `command="retro", app="…"`. Whatever goes wrong is in what it returns, so that others go on.

    `more`: further options, as the command line has them.
    """
    began = time.monotonic()
    json = error = None
    try:
        range = (f"--from={window.from_}", f"--to={window.to}")
        json, code = run_to_end(command, "--json", "--trace", trace, *range, *options(given), *more, allowed=(0, 1))
        outcome = "different" if code else "same"
    except HindcastError as failed:
        outcome, error = "failed", str(failed)
    return Ran(window.from_, window.to, window.requests, outcome, time.monotonic() - began, socket.gethostname(), error, json)
