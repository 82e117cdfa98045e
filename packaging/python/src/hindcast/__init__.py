"""Time travel for services that keep their state in Postgres: the `hindcast` command from Python.

`record` starts a service and records it, `replay` runs a recording again and gives its verdict, `open` looks into it with DuckDB.
"""

from hindcast._command import HindcastError, version
from hindcast._record import Recording, record
from hindcast._trace import Trace, open
from hindcast._verdict import Diverged, Divergence, Verdict, replay

__all__ = [
    "Diverged",
    "Divergence",
    "HindcastError",
    "Recording",
    "Trace",
    "Verdict",
    "open",
    "record",
    "replay",
    "version",
]
