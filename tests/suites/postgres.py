"""Postgres' own suites, from the source package of the server in use, and pgbench."""

import os
import re
import subprocess

from compare import FAILED, PASSED, Outcome
from stage import Failed, postgres_programs, unprivileged

# What pg_regress sets for a database that it makes itself.
REGRESSION_SETTINGS = """
    ALTER DATABASE {0} SET lc_messages TO 'C';
    ALTER DATABASE {0} SET lc_monetary TO 'C';
    ALTER DATABASE {0} SET lc_numeric TO 'C';
    ALTER DATABASE {0} SET lc_time TO 'C';
    ALTER DATABASE {0} SET bytea_output TO 'hex';
    ALTER DATABASE {0} SET timezone_abbreviations TO 'Default';
"""


def source(sources):
    """The source of the installed server, with what the suites need of it built."""
    package = f"postgresql-{postgres_programs().parent.name}"
    query = ["dpkg-query", "-W", "-f", "${Version}", package]
    version = subprocess.run(query, capture_output=True, text=True).stdout
    if not version:
        raise Failed(f"the server in use is not of Debian's package {package}")
    tree = sources.debian(package, version)
    with sources.once(f"{package}-{version}-built") as new:
        if new:
            prefix = f"--prefix={postgres_programs().parent}"
            sources.run("./configure", "--without-readline", "--without-zlib", prefix, cwd=tree)
            for part in ("src/test/regress", "src/test/isolation", "contrib/spi"):
                sources.run("make", "-s", "-C", part, "all", cwd=tree)
            # The server reads test data and libraries from here, as its own user.
            sources.run("chmod", "-R", "go+rX", ".", cwd=tree)
    return tree


class Regress:
    """A suite that pg_regress, or its sister for several sessions, runs by a schedule."""

    limit_s = 3600

    def __init__(self, name, program, database, schedule):
        self.name, self.program, self.database = name, program, database
        self.schedule = schedule
        self.settings = {"max_prepared_transactions": "10"}

    def prepare(self, sources):
        self.tests = source(sources) / "src" / "test" / self.name

    def set_up(self, stage):
        stage.sql(REGRESSION_SETTINGS.format(self.database))

    def run(self, stage):
        output = stage.folder / "output"
        output.mkdir()
        if user := unprivileged():
            os.chown(output, user.pw_uid, user.pw_gid)
        arguments = [
            self.tests / self.program, "--use-existing", f"--dbname={self.database}",
            f"--bindir={stage.programs}", "--host=127.0.0.1", f"--port={stage.port}",
            "--user=postgres", f"--inputdir={self.tests}", f"--outputdir={output}",
            f"--dlpath={self.tests}", f"--schedule={self.tests / self.schedule}",
            "--max-concurrent-tests=20",
        ]  # fmt: skip
        _, said = stage.command(
            "pg_regress.log", arguments, self.limit_s, as_server=True,
            cwd=output, env=stage.environment(),
        )  # fmt: skip
        diffs = output / "regression.diffs"
        return read_regress(said, diffs.read_text(errors="replace") if diffs.exists() else "")


def read_regress(said, diffs):
    """Outcomes from what pg_regress printed. A failed test's part of the diffs belongs to it."""
    details = {}
    for section in re.split(r"(?m)^diff -U3 ", diffs)[1:]:
        head, *lines = section.splitlines()
        test = os.path.basename(head.split()[-1]).removesuffix(".out")
        # The two lines that begin it have names of files and times.
        details[test] = "\n".join(line for line in lines if not line.startswith(("---", "+++")))
    outcomes = {}
    for line in said.splitlines():
        found = re.match(r"(?:test |\s+)(\S+)\s+\.\.\. (ok|FAILED|failed)", line)
        if found:
            passed = found[2] == "ok"
            detail = "" if passed else details.get(found[1], "")
            outcomes[found[1]] = Outcome(PASSED if passed else FAILED, detail)
    if not outcomes:
        raise Failed("no test ran: " + "\n".join(said.splitlines()[-5:]))
    return outcomes


PIPELINE = r"""
\set aid random(1, 100000)
\startpipeline
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
END;
\endpipeline
"""

# After any mix of pgbench's scripts: each change is in an account, and in the history.
SUMS = """
    SELECT (SELECT sum(abalance) FROM pgbench_accounts)
         = (SELECT coalesce(sum(delta), 0) FROM pgbench_history) + {pipelined}
       AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers),
           (SELECT count(*) FROM pgbench_history)
"""


class Pgbench:
    """pgbench's scripts by each protocol: all transactions end, and the sums are right."""

    name, database, settings = "pgbench", "bench", {}
    clients, transactions = 4, 250

    def prepare(self, sources):
        pass

    def set_up(self, stage):
        self.bench(stage, "init", "--initialize", "--quiet")

    def bench(self, stage, log, *arguments):
        program = [stage.programs / "pgbench", *arguments]
        return stage.command(f"{log}.log", program, 600, env=stage.environment())

    def run(self, stage):
        outcomes, in_history, pipelined = {}, 0, 0
        script = stage.folder / "pipeline.sql"
        script.write_text(PIPELINE)
        scripts = {name: ("--builtin", name) for name in ("tpcb-like", "simple-update", "select-only")}
        runs = [(name, protocol) for name in scripts for protocol in ("simple", "extended", "prepared")]
        scripts["pipeline"] = ("--file", str(script))
        for name, protocol in [*runs, ("pipeline", "extended"), ("pipeline", "prepared")]:
            done = self.clients * self.transactions
            in_history += done if name in ("tpcb-like", "simple-update") else 0
            pipelined += done if name == "pipeline" else 0
            status, said = self.bench(
                stage, f"{name}-{protocol}", *scripts[name], "--protocol", protocol,
                # At repeatable read an update of a row that has changed fails, and is tried again.
                "--no-vacuum", "--max-tries", "1000", "--client", str(self.clients),
                "--transactions", str(self.transactions), "--random-seed", "1",
            )  # fmt: skip
            processed = re.search(r"transactions actually processed: (\d+)/(\d+)", said)
            whole = status == 0 and processed and processed[1] == processed[2]
            end = "\n".join(said.splitlines()[-5:])
            outcomes[f"{name} {protocol}"] = Outcome(PASSED if whole else FAILED, note=end)
        sums = stage.sql(SUMS.format(pipelined=pipelined)).strip()
        expected = f"t|{in_history}"
        note = f"{sums}, not {expected}"
        outcomes["sums"] = Outcome(PASSED if sums == expected else FAILED, note=note)
        return outcomes


SUITES = [
    Regress("regress", "pg_regress", "regression", "parallel_schedule"),
    Regress("isolation", "pg_isolation_regress", "isolation_regression", "isolation_schedule"),
    Pgbench(),
]
