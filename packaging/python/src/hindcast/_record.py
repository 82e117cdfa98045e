"""Recording a service for as long as something lasts."""

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

from hindcast._command import HindcastError, options, program

TICK_S = 0.02


class Recording:
    """A service that is being recorded, until `stop`. What it and the recorder write goes to `log`, a path, or is kept for errors."""

    def __init__(self, command, trace, url, log, patience_s, given):
        words = shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]
        given.setdefault("base", "template")
        self.trace = trace
        self._log = tempfile.TemporaryFile("w+b") if log is None else open(log, "w+b")
        self._process = subprocess.Popen(
            [program(), "record", "--trace", os.fspath(trace), *options(given), "--", *words],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip
        try:
            if url is not None:
                self._wait_for(url, patience_s)
        except BaseException:
            self._process.kill() if self._process.poll() is None else None
            raise

    def _wait_for(self, url, patience_s):
        parts = urllib.parse.urlsplit(url)
        address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        deadline = time.monotonic() + patience_s
        while not listens(address):
            if self._process.poll() is not None:
                raise HindcastError.of(self.said(), self._process.returncode)
            if time.monotonic() > deadline:
                self.stop()
                raise HindcastError(f"the service does not accept connections at {url} after {patience_s} s", (self.said().strip(),))
            time.sleep(TICK_S)

    def said(self):
        """What the service and the recorder wrote so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def stop(self, patience_s=120):
        """Ends the service and completes the recording. Once is enough."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise HindcastError(f"the service did not end within {patience_s} s", (self.said().strip(),)) from None
        if self._process.returncode != 0:
            raise HindcastError.of(self.said(), self._process.returncode)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def listens(address):
    try:
        with socket.create_connection(address, 1):
            return True
    except OSError:
        return False


def record(command, trace, *, url=None, log=None, patience_s=60, **given):
    """Starts a service by its command and records it, by the options of `hindcast record`: `postgres`, `redact`, `values`, …

    With `url` it waits until the service accepts connections there. A context manager: its end stops the service.
    A base is taken first unless `base="none"`.
    """
    return Recording(command, trace, url, log, patience_s, given)
