"""Time travel for services that keep their state in Postgres: the `hindcast` command from Python.

`record` starts a service and records it, `replay` runs a recording again and gives its verdict, `open` looks into it with DuckDB. `windows` and
`run_window` divide a recording into ranges that are replayed side by side; `hindcast.spark` does that on a cluster.
"""

from hindcast._command import HindcastError, version
from hindcast._record import Recording, record
from hindcast._trace import Trace, open
from hindcast._verdict import Diverged, Divergence, Verdict, replay
from hindcast._windows import Ran, Window, run_window, windows

__all__ = [
    "Diverged",
    "Divergence",
    "HindcastError",
    "Ran",
    "Recording",
    "Trace",
    "Verdict",
    "Window",
    "open",
    "record",
    "replay",
    "run_window",
    "version",
    "windows",
]
