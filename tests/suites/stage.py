"""What a suite runs on: a private Postgres, and in two of the three ways a recorder before it."""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time

from compare import DIRECT, FAILED, PASSED, RAISED, Outcome

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "target" / "release"
TICK = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """Something that a suite needs could not be had or done: what, and a hint."""

    def __init__(self, what, hint=""):
        super().__init__(what)
        self.hint = hint


@dataclasses.dataclass
class Cost:
    seconds: float
    client_cpu: float
    server_cpu: float
    recorder_cpu: float

    def cpu(self):
        return self.client_cpu + self.server_cpu + self.recorder_cpu


def unprivileged():
    """The user that Postgres runs as where we are root; else None, and everything is ours."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise Failed("Postgres refuses to run as root, and there is neither postgres nor nobody")


def postgres_programs():
    """The folder of the server's programs, the same that private-postgres finds."""
    named = os.environ.get("HINDCAST_PG_BIN")
    folders = [pathlib.Path(named)] if named else []
    newest_first = sorted(
        pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda bin: -int(bin.parent.name)
    )
    for folder in folders + newest_first:
        if (folder / "initdb").exists():
            return folder
    raise Failed("no Postgres server found", "scripts/setup suites")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def end_with_us():
    """In a child: it is interrupted when this process ends, even by SIGKILL."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def cpu_seconds(pid, with_children):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11 : 15 if with_children else 13])) / TICK


class Stage:
    """One server of its own for one run of one suite. The suite connects to `port`."""

    def __init__(self, way, hindcast, folder, database, settings):
        self.way, self.folder, self.database, self.settings = way, folder, database, settings
        self.hindcast, self.programs = hindcast, postgres_programs()
        self.children = []

    def __enter__(self):
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        if user := unprivileged():
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        try:
            self.start_server()
            self.recorder = self.start_recorder() if self.way != DIRECT else None
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_server(self):
        url_file = self.folder / "url"
        # A test's checkpoint removes WAL, which the recorder reads some seconds later under load.
        settings = {"wal_keep_size": "1GB"} | self.settings
        settings = [part for pair in settings.items() for part in ("--set", "=".join(pair))]
        server = self.start(
            "private-postgres", "--url-file", url_file, "--database", self.database, *settings
        )
        self.wait_for("Postgres", server, url_file.exists)
        self.url = url_file.read_text()
        self.server_port = self.port = int(self.url.rsplit(":", 1)[1].split("/")[0])
        data = pathlib.Path(self.sql("SHOW data_directory", port=self.server_port).strip())
        self.postmaster = int((data / "postmaster.pid").read_text().splitlines()[0])

    def start_recorder(self):
        self.port = free_port()
        raised = ["--isolation", "repeatable-read"] if self.way == RAISED else []
        recorder = self.start(
            "hindcast", "record", "--json", "--trace", self.folder / "trace",
            "--postgres", self.url, "--pg-listen", f"127.0.0.1:{self.port}",
            "--listen", f"127.0.0.1:{free_port()}", "--app", "http://127.0.0.1:9", *raised,
        )  # fmt: skip
        self.wait_for("the recorder", recorder, lambda: listens(self.port))
        return recorder

    def __exit__(self, *_):
        for child in reversed(self.children):
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                try:
                    child.wait(60)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()

    def log(self, program):
        return self.folder / f"{program}.log"

    def start(self, program, *arguments):
        with open(self.log(program), "wb") as log:
            child = subprocess.Popen(
                [self.hindcast / program, *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_us,
            )  # fmt: skip
        self.children.append(child)
        return child

    def wait_for(self, what, child, fact, patience_s=60):
        deadline = time.monotonic() + patience_s
        while not fact():
            if child.poll() is not None or time.monotonic() > deadline:
                logs = [log.read_text() for log in self.folder.glob("*.log")]
                raise Failed(f"{what} did not come up:\n" + "".join(logs))
            time.sleep(0.02)

    def environment(self, **more):
        """For libpq and whatever reads its variables. Nothing of the caller's own PG* comes in."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        connection = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "postgres",
            "PGDATABASE": self.database,
        }
        return ours | connection | {name: str(value) for name, value in more.items()}

    def sql(self, text, database=None, port=None):
        """Through psql, past the recorder only where `port` says so."""
        command = [self.programs / "psql", "-XqAtv", "ON_ERROR_STOP=1", "-d", database or self.database]
        if port:
            command += ["-p", str(port)]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, env=self.environment()
        )
        if done.returncode != 0:
            raise Failed(f"psql failed at {text[:200]!r}: {done.stderr}")
        return done.stdout

    @contextlib.contextmanager
    def costing(self):
        """Measures what runs inside: gives a list that holds the `Cost` afterwards."""
        costs = []
        before, start = self.cpu(), time.monotonic()
        yield costs
        seconds, after = time.monotonic() - start, self.cpu()
        costs.append(Cost(seconds, *(end - begin for begin, end in zip(before, after))))

    def cpu(self):
        spent = os.times()
        recorder = cpu_seconds(self.recorder.pid, False) if self.recorder else 0.0
        return (
            spent.children_user + spent.children_system,
            cpu_seconds(self.postmaster, True),
            recorder,
        )

    def command(self, log, arguments, limit_s, as_server=False, **options):
        """Runs a program to its end, its output in `log`. Its whole group is ended at the limit."""
        user = unprivileged() if as_server else None
        identity = dict(user=user.pw_uid, group=user.pw_gid, extra_groups=[]) if user else {}
        with open(self.folder / log, "wb") as output:
            child = subprocess.Popen(
                list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, **identity, **options,
            )  # fmt: skip
            try:
                status = child.wait(limit_s)
            except BaseException as reason:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                if not isinstance(reason, subprocess.TimeoutExpired):
                    raise
                output.write(f"\nended after {limit_s} s\n".encode())
                status = None
        return status, (self.folder / log).read_text(errors="replace")

    def finish(self):
        """Ends the recorder, and gives what it said as outcomes of tests."""
        names = ("ends well", "accounts for all transactions", "follows all sessions")
        if not self.recorder:
            return {f"(recorder) {name}": Outcome(PASSED) for name in names}
        early = self.recorder.poll() is not None
        self.recorder.send_signal(signal.SIGINT)
        try:
            status = self.recorder.wait(120)
        except subprocess.TimeoutExpired:
            status = "still running after 120 s"
        log = self.log("hindcast").read_text(errors="replace")
        well = status == 0 and not early and "panicked" not in log
        said = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        last = next((line for line in reversed(said) if line["event"] == "stopped"), {})
        # Nothing writes past the recorder here, so a transaction without an explanation, or one
        # that it takes for another client's, is its mistake.
        accounts = last.get("unaccounted") == 0 and last.get("unexplained", 0) == 0
        follows = last.get("gaps") == last.get("unaccounted", 0)
        notes = (f"{status}: {log[-500:]}", json.dumps(last), causes(log))
        verdicts = (PASSED if good else FAILED for good in (well, accounts, follows))
        return {
            f"(recorder) {name}": Outcome(verdict, note=note)
            for name, verdict, note in zip(names, verdicts, notes)
        }


def causes(log):
    """Why the recorder's gaps are there, as it has told its log."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    return "\n".join(re.findall(r"the recording has a gap cause=(.*)", plain))
