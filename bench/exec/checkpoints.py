"""Checkpoints: what taking them costs a replay, and how soon another one is where the last was taken."""

import json
import shutil
import statistics
import subprocess
import time

from common import middle

from .runs import Failed, hindcast

EVERY = 0.05


def taken(recording):
    """Of each checkpoint, in the order in which they were taken: its events, and the bytes of its memory."""
    folders = sorted((recording / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    abouts = [(json.loads((folder / "about.json").read_text()), folder) for folder in folders]
    return [({thread["number"]: thread["event"] for thread in about["threads"]}, (folder / "image").stat().st_size) for about, folder in abouts]


def replayed(bench, recording, *options):
    """Seconds of wall time."""
    began = time.monotonic()
    child = bench._start([hindcast(), "exec", "--replay", recording, *options], stdout=subprocess.DEVNULL)
    took = bench._finish(child, began)
    if child.returncode:
        raise Failed(f"exit status {child.returncode}: {bench._stderr()}")
    return took.wall


def part(bench, given, chosen, Table):
    table = Table("", "events", "whole replay, s", "with checkpoints ÷ without", "checkpoints", "MB of one", "from the last one to the end, s", "÷ whole")
    for program in chosen:
        recording = bench.recording()
        bench.recorded(program, recording)
        wholes, costs, lasts, shares, counts, sizes = [], [], [], [], [], []
        for _ in range(max(given.rounds, 2)):
            whole = replayed(bench, recording)
            costs.append(replayed(bench, recording, "--checkpoint-every", EVERY) / whole)
            checkpoints = taken(recording)
            events, size = checkpoints[-1]
            # The thread that has come the furthest, and an event that it has not had.
            thread = max(events, key=events.get)
            lasts.append(replayed(bench, recording, "--at", f"{thread}:{events[thread] + 1}"))
            wholes.append(whole)
            shares.append(lasts[-1] / whole)
            counts.append(len(checkpoints))
            sizes.append(size / 1e6)
            shutil.rmtree(recording / "checkpoints")
        most = f"{sum(events.values()):,}"
        table.row(program.name, most, middle(wholes), middle(costs), f"{statistics.median(counts):.0f}", middle(sizes, 1), middle(lasts), middle(shares))
        bench.forget(recording)
    return f"""## Checkpoints

A recording is replayed whole, then with a checkpoint every {EVERY * 1e3:.0f} ms, then from the last of these to the end. All three begin with what every replay begins with: the recording and the program are compared with what they were.
Events are those before the last checkpoint.

{table}"""
