#!/usr/bin/env python3
"""What the commonest questions about a recording read of it, in DuckDB, ClickHouse and Spark: bytes, seconds, peak memory.

    bench/questions.py TRACE [duckdb|clickhouse|spark …]

TRACE is what `cargo run --release -p hindcast-view --example made -- REQUESTS TRACE` made. Each engine answers twice, in a process of its own
each time: once for the time, and once under strace, which tells what it asks the kernel for of the Parquet files. It needs duckdb, chdb and
pyspark in Python, Java 17 for Spark, and strace. The table is Markdown.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import duckdb

ENGINES = ("duckdb", "clickhouse", "spark")
TABLES = ("requests", "transactions")
# What Spark is given; the others take what they want.
SPARK_MEMORY = "2g"
THREADS = 2

QUESTIONS = {
    "a request, by its number": "SELECT * FROM requests WHERE id = {id}",
    "its transactions": "SELECT * FROM transactions WHERE request = {id}",
    "what failed within a minute": "SELECT id, target FROM requests WHERE status >= 500 AND arrived BETWEEN {from} AND {until}",
    "all requests of a user, whole": "SELECT * FROM requests WHERE user_id = '{user_id}'",
    "all requests to a target": "SELECT * FROM requests WHERE target = '{target}'",
    "the request with a traceparent": "SELECT * FROM requests WHERE caller_traceparent = '{caller_traceparent}'",
    "who wrote as a transaction id": "SELECT * FROM transactions WHERE xid = {xid}",
    "what aborted": "SELECT * FROM transactions WHERE outcome = 'aborted'",
    "the ten slowest": "SELECT id, target, duration_us FROM requests ORDER BY duration_us DESC LIMIT 10",
    "how many of each kind, how slow": "SELECT method, status, count(*), avg(duration_us) FROM requests GROUP BY method, status",
}
TIMES = {
    "duckdb": "TIMESTAMPTZ '{}+00'",
    "clickhouse": "toDateTime64('{}', 6, 'UTC')",
    "spark": "TIMESTAMP '{}+00:00'",
}


def facts(trace):
    """Of a request in the middle that subscribed and whose caller traced it: what the questions ask for."""
    requests, transactions = (f"read_parquet('{trace}/{table}/*.parquet')" for table in TABLES)
    ((half,),) = duckdb.sql(f"SELECT max(id) // 2 FROM {requests}").fetchall()
    columns = ("id", "target", "user_id", "caller_traceparent")
    (found,) = duckdb.sql(
        f"SELECT {', '.join(columns)}, arrived::TIMESTAMP FROM {requests} "
        f"WHERE id BETWEEN {half} AND {half} + 100000 AND method = 'POST' AND caller_traceparent IS NOT NULL LIMIT 1"
    ).fetchall()
    ((xid,),) = duckdb.sql(f"SELECT xid FROM {transactions} WHERE request = {found[0]} AND xid IS NOT NULL").fetchall()
    ((until,),) = duckdb.sql(f"SELECT TIMESTAMP '{found[4]}' + INTERVAL 1 MINUTE").fetchall()
    return dict(zip(columns, found)) | {"xid": xid, "from": str(found[4]), "until": str(until)}


def asked(engine, known):
    """The questions as the engine writes them."""
    times = {name: TIMES[engine].format(known[name]) for name in ("from", "until")}
    return [question.format(**known | times) for question in QUESTIONS.values()]


def answering(engine, trace):
    """A function that answers a question, and tells how many rows that were."""
    if engine == "duckdb":
        here = duckdb.connect(config={"threads": THREADS})
        # Each question reads for itself.
        here.execute("SET TimeZone = 'UTC'; SET enable_external_file_cache = false")
        for table in TABLES:
            here.execute(f"CREATE VIEW {table} AS FROM read_parquet('{trace}/{table}/*.parquet')")
        return lambda question: len(here.execute(question).fetchall())
    if engine == "clickhouse":
        from chdb.session import Session

        here = Session()
        # It maps files into memory otherwise, and what it reads of them is not seen. Each question reads for itself.
        here.query(f"SET max_threads = {THREADS}, storage_file_read_method = 'pread', use_parquet_metadata_cache = 0")
        for table in TABLES:
            here.query(f"CREATE VIEW {table} AS SELECT * FROM file('{trace}/{table}/*.parquet', Parquet)")
        return lambda question: len(str(here.query(question, "TabSeparated")).splitlines())
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.driver.memory": SPARK_MEMORY, "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
    here = SparkSession.builder.master(f"local[{THREADS}]").config(map=settings).getOrCreate()
    for table in TABLES:
        here.read.parquet(f"{trace}/{table}").createOrReplaceTempView(table)
    return lambda question: len(here.sql(question).collect())


def mark(number):
    """Something that is seen among the calls to the kernel."""
    pathlib.Path(f"/question-{number}").exists()


def answer(engine, trace, known):
    """In a process of its own: rows and seconds of each question."""
    tell = answering(engine, trace)
    for number, question in enumerate(asked(engine, known)):
        mark(number)
        began = time.monotonic()
        rows = tell(question)
        print(number, rows, f"{time.monotonic() - began:.3f}", flush=True)
    print("peak", peak(os.getpid()), flush=True)
    os._exit(0)


def peak(process):
    """The most memory that a process had, and those that it started, in bytes."""
    kilobytes = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{process}/status").read_text())
    children = [child for task in pathlib.Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()]
    # What has ended has none.
    return (int(kilobytes[1]) * 1024 if kilobytes else 0) + sum(map(peak, children))


def run(engine, trace, known, *under):
    """Rows and seconds by question, and the peak memory of all in bytes."""
    words = [*under, sys.executable, __file__, "--answer", engine, str(trace), json.dumps(known)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    lines = [line.split() for line in done.stdout.splitlines() if re.fullmatch(r"\d+ \d+ [\d.]+|peak \d+", line)]
    if done.returncode or len(lines) != len(QUESTIONS) + 1:
        raise SystemExit(f"Error: {engine} ended with {done.returncode}\n{done.stdout}")
    return [(int(rows), float(seconds)) for _, rows, seconds in lines[:-1]], int(lines[-1][1])


READ = re.compile(r"(?:read|pread64|readv|preadv)\(\d+<(.*?\.parquet)>.*= (\d+)$")
RESUMED = re.compile(r"^(\d+) .*(?:read|pread64|readv|preadv) resumed>.*= (\d+)$")


def counted(log):
    """Bytes of Parquet files that were read for each question. A call that others interrupt is in two lines."""
    bytes_read, begun, number = [0] * len(QUESTIONS), set(), None
    for line in log.open(errors="replace"):
        thread = line.split(" ", 1)[0]
        if found := re.search(r'"/question-(\d+)"', line):
            number = int(found[1])
        elif number is None:
            continue
        elif found := READ.search(line):
            bytes_read[number] += int(found[2])
        elif ".parquet>" in line and line.rstrip().endswith("<unfinished ...>"):
            begun.add(thread)
        elif (found := RESUMED.match(line)) and thread in begun:
            begun.discard(thread)
            bytes_read[number] += int(found[2])
    return bytes_read


def read_by(engine, trace, known):
    calls = "read,pread64,readv,preadv,openat,newfstatat,stat,statx"
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "calls")
        run(engine, trace, known, "strace", "-f", "-qq", "-y", "-s", "0", "-e", f"trace={calls}", "-e", "signal=none", "-o", str(log))
        return counted(log)


def size(trace):
    return sum(file.stat().st_size for table in TABLES for file in (trace / table).iterdir())


def main(words):
    if words[:1] == ["--answer"]:
        answer(words[1], pathlib.Path(words[2]), json.loads(words[3]))
    trace = pathlib.Path(words[0]).resolve()
    known, total = facts(trace), size(trace)
    results = {engine: (*run(engine, trace, known), read_by(engine, trace, known)) for engine in words[1:] or ENGINES}
    print(f"{total:,} bytes, {len(list((trace / 'requests').iterdir()))} segments. Peak memory:", end=" ")
    print(", ".join(f"{engine} {memory / 1e6:,.0f} MB" for engine, (_, memory, _) in results.items()))
    print(f"\n| | rows |{''.join(f' {engine} | |' for engine in results)}")
    print(f"|---|---|{'---|---|' * len(results)}")
    for number, question in enumerate(QUESTIONS):
        cells = [f"{read[number] / total:.2%} | {answers[number][1]:.2f} s" for answers, _, read in results.values()]
        rows = {answers[number][0] for answers, _, _ in results.values()}
        print(f"| {question} | {' or '.join(map(str, sorted(rows)))} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
