"""`hindcast exec`: what recording and replaying a process costs. The figure `exec` of bench/figures.

Each program runs as it is, recorded and replayed, one after the other, order by order, and that a few times over. What counts is a run ÷ the run as it is just
before it; a ratio of 1 is no cost.
"""

import collections
import pathlib
import statistics
import subprocess
import tempfile
import time

from common import ROOT, machine, middle

from . import checkpoints, followers, programs
from .runs import ORDERS, WAITING, Bench, Failed, Program, hindcast, need

ROUNDS = 2
PARTS = ("locks", "programs", "waiting", "layers", "annotations", "blocks", "beside", "followers", "checkpoints")
# What the paper on relaxed total order has for recording and replaying on average (section 5.3), and the aim for single servers.
AIMS = {"record": 1.153, "replay": 1.317, "server": 1.10}


class Table:
    """Lines of a table, as they come."""

    def __init__(self, *head):
        self.lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]

    def row(self, *cells):
        self.lines.append("| " + " | ".join(cells) + " |")
        print(self.lines[-1], flush=True)

    def __str__(self):
        return "\n".join(self.lines) + "\n"


class Ratios:
    """What runs of one kind took, as multiples of the run as it is just before them."""

    def __init__(self):
        self.off, self.wall, self.cpu, self.log, self.failed = [], [], [], [], None

    def add(self, off, took, server_replayed=False):
        self.off.append(off)
        self.wall.append(took.wall / off.wall)
        # A replay has its start in it, so it is compared with what the program took from start to end.
        before = off.cpu_total if server_replayed else off.cpu
        self.cpu.append((took.cpu_total if server_replayed else took.cpu) / max(before, 0.01))
        self.log.append(took.log_bytes)

    def cell(self, values, failed="failed"):
        return middle(values) if values else (self.failed and failed or "")


def measure(bench, program, rounds, orders=ORDERS, waiting=("adaptive",), more=()):
    """By (order, "record") and (order, "replay", waiting): its ratios."""
    ratios = collections.defaultdict(Ratios)
    for _ in range(rounds):
        for order in orders:
            recording = bench.recording()
            recorded = ratios[order, "record"]
            if recorded.failed:
                continue
            try:
                off = bench.off(program)
                recorded.add(off, bench.recorded(program, recording, order, *more))
            except Failed as error:
                recorded.failed = error
                print(f"  {program.name}, {order}, recording: {error}", flush=True)
                bench.forget(recording)
                continue
            for policy in waiting:
                replayed = ratios[order, "replay", policy]
                if replayed.failed:
                    continue
                try:
                    replayed.add(off, bench.replayed(program, recording, policy), bool(program.load))
                except Failed as error:
                    replayed.failed = error
                    print(f"  {program.name}, {order}, replaying: {error}", flush=True)
            bench.forget(recording)
    return ratios


def bytes_text(count):
    for unit in ("B", "KB", "MB"):
        if count < 1000 or unit == "MB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return ""


def median(values):
    return statistics.median(values) if values else 0


def locks_part(bench, given):
    cost = Table("", "as it is, ns", *(f"{order}, recording" for order in ORDERS), *(f"{order}, replaying" for order in ORDERS))
    size = Table("log bytes per acquisition", *ORDERS)
    for program in programs.locks(bench, given.scale):
        ratios = measure(bench, program, given.rounds)
        off = [run.wall / program.units * 1e9 for order in ORDERS for run in ratios[order, "record"].off]
        record = [ratios[order, "record"].cell(ratios[order, "record"].wall) for order in ORDERS]
        replay = [ratios[order, "replay", "adaptive"].cell(ratios[order, "replay", "adaptive"].wall) for order in ORDERS]
        cost.row(program.name, middle(off, 1) if off else "", *record, *replay)
        # Two threads.
        size.row(program.name, *(f"{median(ratios[order, 'record'].log) / program.units / 2:.2f}" for order in ORDERS))
    return f"""## Locks

Two threads, {int(programs.LOCK_PAIRS * given.scale):,} pairs of lock and unlock each; ns per pair and thread, then the time as a multiple of that.

{cost}
{size}"""


def programs_part(bench, given, means):
    wall = Table("wall", *(f"{order}, recording" for order in ORDERS), *(f"{order}, replaying" for order in ORDERS))
    cpu = Table("CPU", *(f"{order}, recording" for order in ORDERS), *(f"{order}, replaying" for order in ORDERS))
    size = Table("log", "as it is, s", *ORDERS, "per request, edge")
    for program in programs.everything(bench, given.scale):
        ratios = measure(bench, program, given.rounds)
        keys = [(order, "record") for order in ORDERS] + [(order, "replay", "adaptive") for order in ORDERS]
        wall.row(program.name, *(ratios[key].cell(ratios[key].wall) for key in keys))
        cpu.row(program.name, *(ratios[key].cell(ratios[key].cpu) for key in keys))
        edge = ratios["edge", "record"]
        off = [run.wall for order in ORDERS for run in ratios[order, "record"].off]
        each = bytes_text(median(edge.log) / program.units) if program.units and edge.log else ""
        size.row(program.name, middle(off) if off else "", *(bytes_text(median(ratios[order, "record"].log)) if ratios[order, "record"].log else "failed" for order in ORDERS), each)
        for key in keys:
            for what, values in (("wall", ratios[key].wall), ("cpu", ratios[key].cpu)):
                means[key[0], key[1], what].append((program.name, median(values) if values else None, bool(program.load)))
    return f"""## Programs

Multiples of the run as it is. Of servers: while recording, the time that the same requests took and the server's CPU meanwhile, with the client on the same cores; replaying, from start to end, without a client
and without its pauses. Two threads on SQLite in memory; pigz and xz read a file of words; redis-benchmark with 50 clients; ab with 50 clients (R2's Table 5).

{wall}
{cpu}
{size}"""


def waiting_part(bench, given):
    table = Table("replay ÷ as it is", *(f"{order}, {policy}" for order in ("total", "edge") for policy in WAITING))
    chosen = [programs.locks(bench, given.scale)[1], *programs.databases(bench, given.scale)[1:], programs.memcached(bench, given.scale), programs.compressors(bench, given.scale)[0]]
    for program in chosen:
        ratios = measure(bench, program, given.rounds, ("total", "edge"), WAITING)
        keys = [(order, "replay", policy) for order in ("total", "edge") for policy in WAITING]
        table.row(program.name, *(ratios[key].cell(ratios[key].wall) for key in keys))
    return f"""## How replay waits

The paper's Table 6: wall time of a replay whose threads spin, sleep, or do either as it goes (section 4.1.3).

{table}"""


def layers_part(bench, given):
    table = Table("", "as it is, s", "libc: recording", "replaying", "log", "sqlite3: recording", "replaying", "log")
    subprocess.run([bench["query"], bench.folder / "edges.db", "make", "156068"], check=True)
    for temporary in ("file", "memory"):
        cells, off = [], []
        for interface in ((), ("--interface", "sqlite3")):
            ratios = measure(bench, programs.query(bench, temporary, interface), given.rounds, ("edge",))
            record, replay = ratios["edge", "record"], ratios["edge", "replay", "adaptive"]
            off += [run.wall for run in record.off]
            cells += [record.cell(record.wall), replay.cell(replay.wall), bytes_text(median(record.log)) if record.log else ""]
        table.row(f"temporary tables in {temporary}", middle(off) if off else "", *cells)
    return f"""## A higher interface

R2's section 8.4: `SELECT COUNT(*) FROM edge GROUP BY src_uid` ten times over 156,068 edges in a SQLite file, cut at libc and at SQLite's own functions. R2 has 890 and 35 MB at its
system interface, 3 MB at SQLite's.

{table}"""


def annotations_part(bench, given):
    table = Table("", "plain", "cache", "reproduce", "both", "recording, plain", "recording, both")
    chosen = [programs.lighttpd(bench, given.scale), programs.redis(bench, given.scale), programs.compressors(bench, given.scale)[0], programs.query(bench, "file")]
    for program in chosen:
        sizes, costs = [], []
        for more in ((), ("--optimize", "cache"), ("--optimize", "reproduce"), ("--optimize", "cache,reproduce")):
            record = measure(bench, program, given.rounds, ("edge",), (), more)["edge", "record"]
            sizes.append(bytes_text(median(record.log)) if record.log else "failed")
            costs.append(record.cell(record.wall))
        table.row(program.name, *sizes, costs[0], costs[-1])
    return f"""## Annotations that make the log smaller

R2's section 8.5: a status that repeats is not logged (`cache`; 17.7 % less with Apache), files are read again in replay (`reproduce`; 68 % less with BitTorrent). Log bytes, and the time of recording as a multiple.

{table}"""


def blocks_part(bench, given):
    table = Table("block, bytes", "as it is, ns per block", "recording", "replaying", "log bytes per block", "a file, reproduced: recording", "replaying", "log bytes per block")
    for size in programs.BLOCKS:
        cells = []
        for source, more in (("/dev/zero", ()), (programs.content(bench), ("--optimize", "reproduce"))):
            program = programs.dd(size, source, given.scale)
            ratios = measure(bench, program, given.rounds, ("edge",), more=more)
            record, replay = ratios["edge", "record"], ratios["edge", "replay", "adaptive"]
            if not cells:
                cells.append(middle([run.wall / program.units * 1e9 for run in record.off], 0) if record.off else "")
            cells += [record.cell(record.wall), replay.cell(replay.wall), f"{median(record.log) / program.units:,.1f}" if record.log else ""]
        table.row(f"{size:,}", *cells)
    return f"""## Nothing but input and output

`dd` from /dev/zero to /dev/null (the paper's Table 7, where its recorder takes 1.13, 1.73, 4.37 and 4.47 times as long), and from a file that replay reads again. Here the time of starting and ending is taken off.

{table}"""


def beside_part(bench, given):
    """What `dd` says of itself, without starting and ending; and when the log was complete."""
    table = Table("block, bytes", "from", "as it is, ns per block", "recording", "with a follower", "until the log is complete", "log bytes per block")
    for size in programs.BLOCKS:
        for name, source in (("/dev/zero", "/dev/zero"), ("a file", programs.content(bench))):
            program = programs.dd(size, source, given.scale)
            # It is said, not only measured from outside.
            program.command = ["env", "LC_ALL=C", *program.command]
            off, plain, beside, complete, log = [], [], [], [], []
            try:
                for _ in range(given.rounds * 3):
                    whole = bench.off(program)
                    off.append(bench.copied())
                    for more, into in (((), plain), (("--follower",), beside)):
                        recording = bench.recording()
                        took = bench.recorded(program, recording, "edge", *more)
                        into.append(bench.copied() / off[-1])
                        bench.forget(recording)
                    complete.append(took.wall / whole.wall)
                    log.append(took.log_bytes / program.units)
            except Failed as failed:
                table.row(f"{size:,}", name, str(failed))
                continue
            table.row(
                f"{size:,}", name, middle([seconds / program.units * 1e9 for seconds in off], 0), middle(plain), middle(beside), middle(complete), f"{median(log):,.1f}"
            )
    return f"""## A log that is written beside the program

`dd` to /dev/null once more, by the time that it says itself that copying took: recorded, and recorded with `--follower` ([0057](../design/0057-log-written-beside.md)). The paper's Table 7 has 1.26 on average with its follower, 2.93 without,
`rr` 7.7. *Until the log is complete* is the whole command as a multiple of the program's whole run, from start to the end of the follower.

{table}"""


def followers_part(bench, given):
    # As it comes: with its housekeeping threads.
    memcached = programs.memcached(bench, given.scale)
    memcached.command = [word for word in memcached.command if word not in ("-o", "no_lru_maintainer,no_lru_crawler")]
    return followers.part(bench, given, [programs.redis(bench, given.scale), memcached], Table)


def checkpoints_part(bench, given):
    return checkpoints.part(bench, given, [programs.redis(bench, 10 * given.scale), programs.memcached(bench, given.scale)], Table)


def launch(bench, given):
    """What starting and ending takes, which `bench` keeps."""
    program = Program("true", [need("true")])
    walls = {"off": [], "record": [], "replay": []}
    for _ in range(5 * given.rounds):
        recording = bench.recording()
        walls["off"].append(bench.off(program).wall)
        walls["record"].append(bench.recorded(program, recording).wall)
        walls["replay"].append(bench.replayed(program, recording).wall)
        bench.forget(recording)
    bench.launching = {run: statistics.median(times) for run, times in walls.items()}
    texts = {run: middle([1e3 * time for time in times], 1) for run, times in walls.items()}
    return f"Starting and ending `true` takes {texts['off']} ms, recorded {texts['record']} ms, replayed {texts['replay']} ms. It is in the times of pigz, xz and all replays of servers.\n"


def verdict(means):
    """Aims met and missed, of the order that is the default. Replays of servers have no client to wait for, so they count for no mean of replays."""
    lines = []
    for how, doing in (("record", "Recording"), ("replay", "Replaying")):
        for what in ("wall", "cpu"):
            values = [(name, value) for name, value, server in means["edge", how, what] if how == "record" or not server]
            known = [value for _, value in values if value]
            if not known:
                continue
            of = "all programs" if how == "record" else "programs that are no servers"
            without = [name for name, value in values if not value]
            missing = f", without {', '.join(without)}" if without else ""
            mean = statistics.mean(known)
            aim = f" (aim {AIMS[how]:.3f}: {'**met**' if mean <= AIMS[how] else '**missed**'})" if what == "wall" else ""
            lines.append(f"- {doing}, {'CPU' if what == 'cpu' else 'wall'}, mean over {of}{missing}: {mean:.3f}{aim}.")
    for what in ("wall", "cpu"):
        for name, value, _ in means["edge", "record", what]:
            if value and name.startswith(("redis", "lighttpd")):
                word = "CPU" if what == "cpu" else "wall"
                lines.append(f"- Recording {name}, {word}: {value:.2f} (aim {AIMS['server']:.2f}: {'**met**' if value <= AIMS['server'] else '**missed**'}).")
    return "\n".join(lines) + "\n"


NOTES = "## What lies behind the figures"


def notes():
    """What somebody wrote about an earlier run stays in the results."""
    results = ROOT / "docs" / "results" / "exec.md"
    _, found, after = (results.read_text() if results.exists() else "").partition(NOTES)
    return found + after.split("\n## ")[0].rstrip() + "\n\n" if found else ""


def figure(given):
    parts = given.parts or PARTS
    means = collections.defaultdict(list)
    sections = []
    if not pathlib.Path(hindcast()).exists():
        raise SystemExit(f"Error: {hindcast()} is not there\nHint: cargo build --release -p hindcast-cli")
    with tempfile.TemporaryDirectory(prefix="hindcast-bench-", dir=given.folder) as folder:
        pathlib.Path(folder).chmod(0o755)
        bench = Bench(pathlib.Path(folder))
        start = time.monotonic()
        launching = launch(bench, given)
        made = {
            "locks": locks_part, "programs": lambda bench, given: programs_part(bench, given, means), "waiting": waiting_part,
            "layers": layers_part, "annotations": annotations_part, "blocks": blocks_part, "beside": beside_part, "followers": followers_part,
            "checkpoints": checkpoints_part,
        }  # fmt: skip
        for part in PARTS:
            if part in parts:
                print(f"-- {part}", flush=True)
                sections.append(made[part](bench, given))
        took = time.monotonic() - start
    return f"""# Recording and replaying a process

Ratios to the same program as it is, run just before; median and range. Orders are those of [0015](../design/0015-acquisition-orders.md); `edge` is the default.

{verdict(means)}
{launching}
{notes()}""" + "\n".join(sections) + f"\nThe whole took {took:.0f} s.\n"


def footer(given):
    parts = "".join(f" --part {part}" for part in given.parts or ())
    command = f"bench/figures exec --rounds {given.rounds} --scale {given.scale:g}{parts}"
    return f"\nMade with `{command}` on {time.strftime('%Y-%m-%d')}: {machine(settings=None)}, shared and noisy; ratios within one run count, single times do not.\n"
