"""What a suite said, and where two runs of it differ. Pure: no process, no file.

A suite runs in up to three ways: direct, recorded, and recorded with raised isolation. Each run
gives an `Outcome` per test. A difference is a test whose outcome through the recorder is not the
direct one; whether either is the outcome that the suite's authors wanted does not matter here.
"""

import dataclasses
import difflib
import fnmatch

DIRECT, RECORDED, RAISED = "direct", "recorded", "raised"
WAYS = (DIRECT, RECORDED, RAISED)

PASSED, FAILED, SKIPPED, MISSING = "passed", "failed", "skipped", "missing"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one test ended.

    `detail` belongs to the outcome: two runs that fail with different details differ. It is for
    suites whose output is the same in each run. `note` is only shown.
    """

    verdict: str
    detail: str = ""
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Difference:
    suite: str
    way: str
    test: str
    direct: Outcome
    through: Outcome

    def change(self):
        if self.direct.verdict == self.through.verdict:
            return f"{self.direct.verdict} either way, with other output"
        return f"{self.direct.verdict} direct, {self.through.verdict} through the recorder"

    def explanation(self):
        """The lines in which details differ; else what is noted of the run that failed."""
        if self.direct.detail or self.through.detail:
            details = [outcome.detail.splitlines() for outcome in (self.direct, self.through)]
            lines = list(difflib.unified_diff(*details, lineterm="", n=0))
            return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
        return self.through.note or self.direct.note


@dataclasses.dataclass(frozen=True)
class Known:
    """A row of the table of known differences. Test is a pattern as a shell has it."""

    suite: str
    way: str
    test: str
    reason: str

    def covers(self, difference):
        return (
            self.suite == difference.suite
            and self.way in ("both", difference.way)
            and fnmatch.fnmatchcase(difference.test, self.test)
        )


def differences(suite, way, direct, through):
    """Each test of either run whose outcomes differ, in the order of the direct run."""
    missing = Outcome(MISSING)
    tests = list(direct) + [test for test in through if test not in direct]
    return [
        Difference(suite, way, test, direct.get(test, missing), through.get(test, missing))
        for test in tests
        if direct.get(test, missing) != through.get(test, missing)
    ]


def in_both(first, second):
    """Splits the differences of a first run into those that a second run shows, too, and others."""
    again = {difference.test for difference in second}
    steady = [difference for difference in first if difference.test in again]
    return steady, [difference for difference in first if difference.test not in again]


def passes(outcomes):
    return sum(outcome.verdict == PASSED for outcome in outcomes.values())


def read_known(page):
    """The rows of the table under the heading "Known differences" of docs/results/suites.md."""
    _, _, section = page.partition("## Known differences")
    section = section.partition("\n## ")[0]
    rows = [split_row(line) for line in section.splitlines() if line.startswith("|")]
    # The first two rows are the table's head.
    return [Known(suite, way, test.strip("`"), reason) for suite, way, test, reason in rows[2:]]


def split_row(line):
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if len(cells) != 4:
        raise ValueError(f"not four cells in the row of a known difference: {line}")
    return cells


def sort_out(found, known):
    """Differences with their rows, and those without one."""
    listed, unlisted = [], []
    for difference in found:
        row = next((row for row in known if row.covers(difference)), None)
        if row:
            listed.append((difference, row))
        else:
            unlisted.append(difference)
    return listed, unlisted


def no_longer(known, found, ran):
    """Rows that cover nothing, among those whose suite ran in their way. `ran`: (suite, way)."""
    return [
        row
        for row in known
        if any((row.suite, way) in ran for way in (RECORDED, RAISED) if row.way in ("both", way))
        and not any(row.covers(difference) for difference in found)
    ]
