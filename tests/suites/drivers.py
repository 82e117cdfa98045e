"""The test suites of drivers.

Versions are fixed, so that a difference is ours and not a new release's. psycopg and node-postgres
publish their tests in no registry: they run where a checkout of theirs is named, and are reported
as not run elsewhere.
"""

import json
import shutil
import xml.etree.ElementTree

from compare import FAILED, PASSED, SKIPPED, Outcome
from stage import Failed

PSYCOPG2, ASYNCPG, PGX, PGJDBC = "2.9.13", "0.32.0", "v5.5.5", "42.7.4"
# psycopg's settings turn each warning into an error, so a later pytest may break it.
PYTEST = "pytest==8.4.2"


def read_junit(file):
    """Outcomes from a report in JUnit's format, which pytest and Maven write."""
    outcomes = {}
    for case in xml.etree.ElementTree.parse(file).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        if problem is not None:
            text = problem.text or problem.get("message") or ""
            outcomes[name] = Outcome(FAILED, note=text)
        elif name not in outcomes:
            skipped = case.find("skipped") is not None
            outcomes[name] = Outcome(SKIPPED if skipped else PASSED)
    return outcomes


class Pytest:
    """What the Python drivers share."""

    limit_s = 1800
    settings = {"max_prepared_transactions": "10"}
    options = ()

    def set_up(self, stage):
        pass

    def run(self, stage):
        report = stage.folder / "report.xml"
        cache = f"cache_dir={stage.folder / 'cache'}"
        arguments = ["-q", "-o", cache, f"--junitxml={report}", *self.options]
        environment = stage.environment(**self.variables(stage), PYTHONDONTWRITEBYTECODE=1)
        status, said = stage.command(
            "pytest.log", [self.python, "-m", "pytest", *arguments, "tests"], self.limit_s,
            cwd=self.folder, env=environment,
        )  # fmt: skip
        # 1: some tests failed. Beyond that it did not come to run them, or not all of them.
        if status not in (0, 1, None) or not report.exists():
            raise Failed(f"pytest ended with {status}: " + "\n".join(said.splitlines()[-5:]))
        return read_junit(report)

    def variables(self, stage):
        return {}

    def tests_alone(self, sources, tree, name):
        """A copy without the driver's own sources, which would hide the installed driver."""
        with sources.once(name) as new:
            if new:
                shutil.copytree(tree / "tests", new / "tests")
        return sources.folder / name


class Psycopg2(Pytest):
    name, database = "psycopg2", "psycopg2_test"

    def prepare(self, sources):
        self.python = sources.python("psycopg2", f"psycopg2-binary=={PSYCOPG2}", PYTEST)
        tree = sources.sdist("psycopg2", PSYCOPG2)
        self.folder = self.tests_alone(sources, tree, "psycopg2-tests")

    def set_up(self, stage):
        stage.sql("CREATE EXTENSION hstore")


class Asyncpg(Pytest):
    name, database = "asyncpg", "asyncpg_test"
    # These two look at asyncpg's own source and at the machine, not at a server.
    options = ("--ignore=tests/test__sourcecode.py", "--ignore=tests/test__environment.py")

    def prepare(self, sources):
        self.python = sources.python("asyncpg", f"asyncpg=={ASYNCPG}", PYTEST, "distro")
        tree = sources.sdist("asyncpg", ASYNCPG)
        self.folder = self.tests_alone(sources, tree, "asyncpg-tests")


class Psycopg(Pytest):
    name, database, checkout = "psycopg", "psycopg_test", None
    # Those that the project marks as slow, as unsteady, or as bound to a clock; and mypy's.
    options = ("-m", "not slow and not flakey and not timing and not mypy and not crdb",)

    def prepare(self, sources):
        if not self.checkout:
            raise Failed("its packages carry no tests", "--checkout psycopg=DIR of its repository")
        packages = [self.checkout / part for part in ("psycopg", "psycopg_pool")]
        needed = [PYTEST, "anyio", "pproxy", "dnspython"]
        self.python = sources.python("psycopg", *packages, *needed)
        self.folder = self.tests_alone(sources, self.checkout, "psycopg-tests")
        shutil.copy(self.checkout / "pyproject.toml", self.folder)

    def variables(self, stage):
        dsn = f"host=127.0.0.1 port={stage.port} user=postgres dbname={self.database}"
        # Without the C implementation, which a checkout would have to build.
        return {"PSYCOPG_TEST_DSN": dsn, "PSYCOPG_IMPL": "python"}


class Pgx:
    name, database, settings = "pgx", "pgx_test", {"max_prepared_transactions": "10"}
    module = "github.com/jackc/pgx/v5"

    def prepare(self, sources):
        self.folder = sources.go_module(self.module, PGX)
        # Compiled here, so that no run pays for it.
        sources.run("go", "test", "-count=1", "-run=^$", "./...", cwd=self.folder)

    def set_up(self, stage):
        # As pgx' testsetup/postgresql_setup.sql, without the users of other ways to log in.
        stage.sql(
            "CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE DOMAIN uint64 AS numeric(20,0);"
            """CREATE USER " tricky, ' } "" \\ test user " SUPERUSER PASSWORD 'secret'"""
        )

    def run(self, stage):
        database = f"host=127.0.0.1 port={stage.port} user=postgres dbname={self.database}"
        names = ("PGX_TEST_DATABASE", "PGX_TEST_TCP_CONN_STRING")
        _, said = stage.command(
            "go-test.log", ["go", "test", "-count=1", "-p=1", "-json", "./..."], 1800,
            cwd=self.folder, env=stage.environment(**dict.fromkeys(names, database)),
        )  # fmt: skip
        return read_go(said, self.module)


def read_go(said, module):
    """Outcomes from `go test -json`. A package that fails outside of a test is a test, too."""
    verdicts = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
    outcomes, output = {}, {}
    for line in said.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        package = event.get("Package", "").removeprefix(module).strip("/") or "pgx"
        name = f"{package} {event.get('Test', '(package)')}"
        if event["Action"] == "output":
            output.setdefault(name, []).append(event["Output"])
        elif event["Action"] in verdicts:
            note = "".join(output.get(name, []))
            outcomes[name] = Outcome(verdicts[event["Action"]], note=note)
    if not outcomes:
        raise Failed("no test ran: " + "\n".join(said.splitlines()[-5:]))
    return outcomes


class Pgjdbc:
    name, database = "pgjdbc", "test"
    settings = {"max_prepared_transactions": "64", "max_connections": "200"}

    def prepare(self, sources):
        archive = f"org.postgresql:postgresql:{PGJDBC}:tar.gz:jdbc-src"
        self.folder = sources.maven_archive("pgjdbc", PGJDBC, archive)
        self.maven = ["mvn", "-q", "-B", "-DskipShadeDependencies=true"]
        # Compiles, and fetches what a run without network needs, by a test that needs no server.
        if not (self.folder / "target" / "surefire-reports").exists():
            one = ["-Dtest=ParserTest", "-DfailIfNoTests=false"]
            sources.run(*self.maven, "test", *one, cwd=self.folder)

    def set_up(self, stage):
        stage.sql(
            "CREATE ROLE test LOGIN PASSWORD 'test'; ALTER DATABASE test OWNER TO test;"
            "GRANT ALL ON SCHEMA public TO test;"
            "CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION \"uuid-ossp\";"
        )

    def run(self, stage):
        settings = {"server": "127.0.0.1", "port": stage.port}
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.folder / "build.local.properties").write_text(lines)
        reports = self.folder / "target" / "surefire-reports"
        shutil.rmtree(reports, ignore_errors=True)
        test = [*self.maven, "-o", "-Dmaven.test.failure.ignore=true", "surefire:test"]
        _, said = stage.command("maven.log", test, 3600, cwd=self.folder, env=stage.environment())
        outcomes = {}
        for report in sorted(reports.glob("TEST-*.xml")):
            outcomes |= read_junit(report)
        if not outcomes:
            raise Failed("no test ran: " + "\n".join(said.splitlines()[-5:]))
        return outcomes


class NodePostgres:
    name, database, settings, checkout = "node-postgres", "node_test", {}, None
    # What its tests need beside itself, at the versions its repository names.
    packages = [
        "pg-connection-string@2", "pg-pool@3", "pg-protocol@1", "pg-types@2.2.0", "pgpass@1.0.5",
        "async@2.6.4", "bluebird@3.7.2", "co@4.6.0", "pg-copy-streams@0.3.0",
    ]  # fmt: skip

    def prepare(self, sources):
        if not self.checkout:
            raise Failed("its packages carry no tests", "--checkout node-postgres=DIR of its repository")
        with sources.once("node-postgres") as new:
            if new:
                shutil.copytree(self.checkout / "packages" / "pg", new / "packages" / "pg")
                (new / "package.json").write_text("{}\n")
                sources.run("npm", "install", "--legacy-peer-deps", *self.packages, cwd=new)
        self.folder = sources.folder / "node-postgres" / "packages" / "pg"

    def set_up(self, stage):
        pass

    def run(self, stage):
        outcomes = {}
        for file in sorted((self.folder / "test" / "integration").rglob("*-tests.js")):
            name = str(file.relative_to(self.folder / "test" / "integration"))
            status, said = stage.command(
                f"{name.replace('/', '-')}.log", ["node", file], 60,
                cwd=self.folder, env=stage.environment(),
            )  # fmt: skip
            end = "\n".join(said.splitlines()[-12:])
            outcomes[name] = Outcome(PASSED if status == 0 else FAILED, note=end)
        return outcomes


SUITES = [Pgx(), Asyncpg(), Psycopg2(), Pgjdbc(), Psycopg(), NodePostgres()]
