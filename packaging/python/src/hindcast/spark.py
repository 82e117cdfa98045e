"""Replays or retroacts a recording by windows, side by side, on the machines of a Spark cluster.

    spark-submit --master … "$(python -c 'import hindcast.spark as it; print(it.__file__)')" \\
        --trace s3://traces/shop --size 10000 --to s3a://traces/verdicts -- --postgres postgres://me@localhost/shop

A window is a task. Its machine needs this package, the service, and the server that holds the rewound database; what follows `--` is
passed on to `hindcast replay` (`--command retro`: to `hindcast retro`). The verdicts are written as Parquet: a row for each window.
"""

import argparse
import sys

from hindcast._command import HindcastError
from hindcast._windows import Ran, run_window, windows

SCHEMA = "`from` string, `to` string, requests long, outcome string, seconds double, host string, error string, json string"


def replay(spark, trace, size=10_000, command="replay", more=(), **given):
    """A DataFrame with a row for each window, in their order, with the columns of `Ran`. `more`: options as the command line has them.

    Options by name, as `key`, are for all; where the recording is, every machine has to be able to read it.
    """
    found = windows(trace, size, **{name: value for name, value in given.items() if name in ("key", "secrets_key")})

    def ran(window):
        done = run_window(window, trace, command, more, **given)
        return tuple(getattr(done, field) for field in Ran.__dataclass_fields__)

    # One window to a partition: each takes long enough to be worth it, and a slow one holds up no other.
    return spark.createDataFrame(spark.sparkContext.parallelize(found, max(len(found), 1)).map(ran), SCHEMA)


def main(words):
    own, more = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(prog="hindcast.spark", description="Replays a recording by windows on the machines of a Spark cluster.")
    parser.add_argument("--trace", required=True, help="where the recording is: s3://bucket/prefix, or a folder that all machines have")
    parser.add_argument("--to", required=True, help="where the verdicts go, as Parquet, by the name that Spark has for it")
    parser.add_argument("--size", type=int, default=10_000, help="requests of a window (default: 10000)")
    parser.add_argument("--command", choices=("replay", "retro"), default="replay")
    asked = parser.parse_args(own)

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"hindcast {asked.command} {asked.trace}").getOrCreate()
    try:
        done = replay(spark, asked.trace, asked.size, asked.command, more)
        done.write.mode("errorifexists").parquet(asked.to)
        counted = spark.read.parquet(asked.to).groupBy("outcome").count().collect()
    except HindcastError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 3
    finally:
        spark.stop()
    counts = {row["outcome"]: row["count"] for row in counted}
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no windows")
    return 3 if counts.get("failed") else 1 if counts.get("different") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
