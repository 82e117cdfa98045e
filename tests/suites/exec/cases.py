"""What is run: suites that other people wrote, and programs that are known to be hard."""

import dataclasses
import os
import shutil
import stat
import subprocess


@dataclasses.dataclass
class Case:
    """One command. `prepare` puts what it needs into the folder in which it is started."""

    program: str
    what: str
    command: list
    version: list
    prepare: object = None
    options: tuple = ()
    environment: dict = dataclasses.field(default_factory=dict)
    # Several processes write at once: their lines come in any order.
    any_order: bool = False


def file(name, text):
    def prepare(folder):
        (folder / name).write_text(text)

    return prepare


# ---- Lua's own suite ----


def lua(sources, checkout):
    """The tests are not in Debian's package: a checkout of the same version has them in testes/."""

    def prepare(folder):
        shutil.copytree(checkout / "testes", folder, dirs_exist_ok=True)

    files = (
        "strings tpack utf8 sort pm nextvar events closure calls constructs vararg goto math bitwise "
        "coroutine errors literals locals attrib cstack db gc gengc files verybig bwcoercion"
    ).split()
    for name in files:
        command = ["lua5.4", "-e", "_U=true; _port=true", f"{name}.lua"]
        yield Case("lua", name, command, ["lua5.4", "-v"], prepare)


# ---- CPython's own suite ----

PYTHON = "/usr/bin/python3"
MODULES = (
    "json float re struct zlib hashlib sqlite3 os posix mmap select subprocess signal tempfile "
    "thread threading threading_local queue sched socketserver httpservers asyncore"
).split()


def cpython(sources, checkout):
    for module in MODULES:
        command = [PYTHON, "-m", "test", "-q", f"test_{module}"]
        yield Case("CPython", f"test_{module}", command, [PYTHON, "-V"])


PYTHON_THREADS = {
    "busy threads": """
import threading
seen = []
def compute(n):
    total = 0
    for i in range(400000):
        total += i * n % 7
        if i % 50000 == 0: seen.append((n, i))
    seen.append((n, total))
threads = [threading.Thread(target=compute, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(seen)
""",
    "http.server, 8 clients": """
import http.server, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *parts): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever).start()
got = []
def ask(n):
    for i in range(25):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/it.py") as answer:
            got.append((n, i, len(answer.read())))
clients = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
for t in clients: t.start()
for t in clients: t.join()
server.shutdown()
print(got)
""",
}


# ---- stress-ng ----

STRESSORS = {
    "cpu": 40, "malloc": 2000, "vm": 400, "mmap": 50, "mremap": 50, "memfd": 20, "qsort": 5,
    "zlib": 20, "pipe": 4000, "poll": 2000, "epoll": 500, "eventfd": 2000, "switch": 2000,
    "sock": 50, "udp": 500, "signal": 5000, "sigq": 2000, "timer": 500, "itimer": 500,
    "nanosleep": 200, "clock": 500, "getrandom": 500, "hdd": 500, "dentry": 200, "dir": 200,
    "fork": 100, "vfork": 100, "exec": 20, "wait": 200, "pthread": 500, "mutex": 2000,
    "sem": 2000, "futex": 2000, "tsc": 20, "context": 500,
}  # fmt: skip


def stress_ng(sources, checkout):
    for name, count in STRESSORS.items():
        command = ["stress-ng", "--quiet", f"--{name}", "1", f"--{name}-ops", str(count)]
        command += ["--timeout", "30", "--temp-path", "."]
        yield Case("stress-ng", name, command, ["stress-ng", "--version"], any_order=True)


# ---- Programs with threads that share memory ----

RUBY = {
    "one thread": "puts (1..200000).map { |i| (i * 7).to_s.reverse }.sort.first(5).inspect; GC.start; puts GC.count",
    "threads": """
seen = Queue.new
threads = 4.times.map { |n| Thread.new { 40.times { |i| seen << [n, i, (1..2000).sum { |k| k * n }] } } }
threads.each(&:join)
puts seen.size.times.map { seen.pop }.inspect
""",
}
NODE = {
    "alone": "console.log([...Array(200000).keys()].map(i => String(i * 7)).sort().slice(0, 5), Date.now())",
    "worker_threads": """
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads')
if (isMainThread) {
  for (let n = 0; n < 3; n++) new Worker(__filename, { workerData: n }).on('message', text => console.log(text))
} else {
  let sum = 0
  for (let i = 0; i < 1e6; i++) sum += i % (workerData + 2)
  parentPort.postMessage(`${workerData}: ${sum}`)
}
""",
}


def threads(sources, checkout):
    """Each as it is recorded by default, and one thread at a time."""
    for case in programs_with_threads():
        yield case
        alone = f"{case.what}, one at a time"
        yield dataclasses.replace(case, what=alone, options=("--one-at-a-time",))


def programs_with_threads():
    for name, text in PYTHON_THREADS.items():
        yield Case("CPython", name, [PYTHON, "it.py"], [PYTHON, "-V"], file("it.py", text))
    for name, text in RUBY.items():
        yield Case("ruby", name, ["ruby", "it.rb"], ["ruby", "-v"], file("it.rb", text))
    for name, text in NODE.items():
        for flags in ([], ["--single-threaded"]):
            what = " ".join([name, *flags])
            yield Case("node", what, ["node", *flags, "it.js"], ["node", "-v"], file("it.js", text))
    hello = 'class It { public static void main(String[] a) { System.out.println("hello " + System.nanoTime()); } }'
    yield Case("java", "hello", ["java", "-Xshare:auto", "It.java"], ["java", "-version"], file("It.java", hello))
    for count in (1, 2):
        command = ["ffmpeg", "-v", "error", "-threads", str(count), "-f", "lavfi", "-i"]
        command += ["testsrc=duration=1:size=320x240:rate=10", "-c:v", "mpeg4", "-threads", str(count)]
        command += ["-f", "md5", "-"]
        yield Case("ffmpeg", f"{count} threads", command, ["ffmpeg", "-version"])


SUITES = {"lua": lua, "cpython": cpython, "stress-ng": stress_ng, "threads": threads}


# ---- redis: the suite starts the servers, each of which is a recording ----


class Redis:
    """Its suite in Tcl with `src/redis-server` replaced by one that is recorded."""

    UNITS = ("unit/type/string", "unit/type/list", "unit/type/hash", "unit/type/set", "unit/type/zset",
             "unit/expire", "unit/multi", "unit/scripting", "unit/pubsub", "unit/scan")  # fmt: skip

    def __init__(self, sources):
        self.source = sources.debian("redis", installed("redis-server"))

    def lay_out(self, folder, hindcast):
        """`hindcast` is nothing where the servers are not recorded."""
        for part in ("tests", "runtest", "redis.conf"):
            copy = shutil.copytree if (self.source / part).is_dir() else shutil.copy
            copy(self.source / part, folder / part)
        programs = folder / "src"
        programs.mkdir()
        for name in ("redis-cli", "redis-benchmark"):
            (programs / name).symlink_to(shutil.which(name))
        server = shutil.which("redis-server")
        wrapped = f'exec {server} "$@"'
        if hindcast:
            wrapped = f'exec {hindcast} exec --record {folder}/recorded-$$ -- {server} "$@"'
        program(programs / "redis-server", wrapped)

    def command(self, unit):
        return ["./runtest", "--single", unit, "--clients", "1", "--tags", "-slow -needs:debug"]


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def installed(package):
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${source:Version}", package], capture_output=True, text=True
    )
    return shown.stdout


def version_of(command):
    """The first line of what a program says about itself."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        env=os.environ | {"LC_ALL": "C"},
    )  # fmt: skip
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""
