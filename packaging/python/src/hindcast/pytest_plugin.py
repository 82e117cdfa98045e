"""Records the service that a run of tests talks to, and replays the run at its end.

    pytest --hindcast trace --hindcast-command 'gunicorn shop.wsgi -b 127.0.0.1:8000' --hindcast-url http://127.0.0.1:8000

Without `--hindcast` it does nothing.
"""

import dataclasses
import json
import os
import time

import pytest

from hindcast._command import HindcastError, run
from hindcast._record import Recording, record
from hindcast._verdict import Verdict, replay

STATE = pytest.StashKey()


@dataclasses.dataclass
class State:
    """Of a session. `windows` has, of each test, when it began and ended, in µs: that tells its requests."""

    trace: str
    recording: Recording | None = None
    windows: dict = dataclasses.field(default_factory=dict)
    failed: list = dataclasses.field(default_factory=list)
    verdict: Verdict | None = None
    error: HindcastError | None = None


def pytest_addoption(parser):
    group = parser.getgroup("hindcast", "recording of the tested service")
    group.addoption("--hindcast", metavar="DIR", help="record the service into this folder, and replay the run")
    group.addoption("--hindcast-command", metavar="COMMAND", help="what starts the service (ini: hindcast_command)")
    group.addoption("--hindcast-url", metavar="URL", help="where the service listens (ini: hindcast_url)")
    group.addoption("--hindcast-postgres", metavar="URL", help="the database; default: DATABASE_URL")
    group.addoption("--hindcast-no-replay", action="store_true", help="only record")
    parser.addini("hindcast_command", "what starts the service")
    parser.addini("hindcast_url", "where the service listens")


def asked(config, name):
    return config.getoption(name) or config.getini(name)


def pytest_configure(config):
    trace = config.getoption("hindcast")
    if trace is None:
        return
    for name in ("hindcast_command", "hindcast_url"):
        if not asked(config, name):
            raise pytest.UsageError(f"--hindcast needs --{name.replace('_', '-')}, or {name} in the ini file")
    if os.path.isdir(trace) and os.listdir(trace):
        raise pytest.UsageError(f"--hindcast {trace}: the folder is not empty; each run is a recording of its own")
    config.stash[STATE] = State(trace)


def pytest_sessionstart(session):
    config = session.config
    if (state := config.stash.get(STATE, None)) is None or hasattr(config, "workerinput"):
        return
    try:
        state.recording = record(
            asked(config, "hindcast_command"), state.trace,
            url=asked(config, "hindcast_url"), postgres=config.getoption("hindcast_postgres"),
        )  # fmt: skip
    except HindcastError as error:
        raise pytest.UsageError(f"the service cannot be recorded: {error}") from None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    began = time.time_ns() // 1000
    yield
    if (state := item.config.stash.get(STATE, None)) is not None:
        state.windows[item.nodeid] = (began, time.time_ns() // 1000)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    state = item.config.stash.get(STATE, None)
    if state is not None and report.failed and item.nodeid not in state.failed:
        state.failed.append(item.nodeid)


def pytest_sessionfinish(session, exitstatus):
    config = session.config
    state = config.stash.get(STATE, None)
    if state is None or state.recording is None:
        return
    try:
        state.recording.stop()
        if not config.getoption("hindcast_no_replay"):
            state.verdict = replay(state.trace, postgres=config.getoption("hindcast_postgres") or os.environ.get("DATABASE_URL"))
    except HindcastError as error:
        state.error = error
    broken = state.error is not None or state.verdict is not None and not state.verdict.faithful
    if broken and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    state = config.stash.get(STATE, None)
    if state is None or state.recording is None:
        return
    terminalreporter.section("hindcast")
    for line in lines(state):
        terminalreporter.write_line(line)


def lines(state):
    yield f"recorded in {state.trace}"
    if state.verdict is not None:
        yield "replay: faithful" if state.verdict.faithful else f"replay: diverged: {state.verdict.divergences[0]}"
    if state.error is not None:
        yield str(state.error)
    if state.failed:
        requests = arrivals(state.trace)
    for test in state.failed:
        began, ended = state.windows.get(test, (0, 0))
        own = [name for name, arrived in requests if began <= arrived <= ended]
        if own:
            yield f"{test} sent requests {own[0]} to {own[-1]}: hindcast replay --trace {state.trace} --from {own[0]} --to {own[-1]}"


def arrivals(trace):
    listed = map(json.loads, run("ls", "--json", "--limit", "0", "--trace", trace).splitlines())
    return [(one["request"], one["arrived_us"]) for one in listed]
