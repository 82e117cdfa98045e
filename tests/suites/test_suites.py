"""What the harness itself must do: `python3 -m unittest discover tests/suites`."""

import unittest

from compare import (
    FAILED, PASSED, RAISED, RECORDED,
    Difference, Known, Outcome, differences, in_both, no_longer, read_known, sort_out,
)  # fmt: skip
from drivers import read_go
from postgres import read_regress
from sources import with_sources

PAGE = """
# Title

## Known differences

| suite | way | test | reason |
|---|---|---|---|
| pgx | raised | `pgconn Test*` | it asks for the level |

## After

| not | a | known | one |
"""


def difference(suite="pgx", way=RAISED, test="pgconn TestIsolation"):
    return Difference(suite, way, test, Outcome(PASSED), Outcome(FAILED))


class Compare(unittest.TestCase):
    def test_only_outcomes_that_differ_are_differences(self):
        direct = {"a": Outcome(PASSED), "b": Outcome(FAILED, note="at 10:01"), "c": Outcome(PASSED)}
        through = {"a": Outcome(PASSED), "b": Outcome(FAILED, note="at 10:02"), "d": Outcome(PASSED)}
        found = differences("s", RECORDED, direct, through)
        self.assertEqual([one.test for one in found], ["c", "d"])

    def test_a_detail_belongs_to_the_outcome(self):
        direct, through = {"a": Outcome(FAILED, "x")}, {"a": Outcome(FAILED, "y")}
        self.assertEqual(len(differences("s", RECORDED, direct, through)), 1)

    def test_a_difference_counts_if_it_comes_again(self):
        first = [difference(test="a"), difference(test="b")]
        steady, unsteady = in_both(first, [difference(test="b"), difference(test="c")])
        self.assertEqual([one.test for one in steady], ["b"])
        self.assertEqual([one.test for one in unsteady], ["a"])

    def test_a_row_covers_its_suite_way_and_pattern_only(self):
        (known,) = read_known(PAGE)
        self.assertEqual(known, Known("pgx", RAISED, "pgconn Test*", "it asks for the level"))
        listed, unlisted = sort_out([difference(), difference(way=RECORDED)], [known])
        self.assertEqual((len(listed), len(unlisted)), (1, 1))

    def test_a_row_without_a_difference_is_named_if_its_suite_ran(self):
        known = read_known(PAGE)
        self.assertEqual(no_longer(known, [], {("pgx", RAISED)}), known)
        self.assertEqual(no_longer(known, [], {("pgx", RECORDED)}), [])
        self.assertEqual(no_longer(known, [difference()], {("pgx", RAISED)}), [])


class Readers(unittest.TestCase):
    def test_pg_regress(self):
        said = (
            "test tablespace                   ... ok          243 ms\n"
            "parallel group (2 tests):  boolean guc\n"
            "     boolean                      ... ok           43 ms\n"
            "     guc                          ... FAILED       51 ms\n"
        )
        diffs = "diff -U3 /x/expected/guc.out /y/results/guc.out\n--- /x\tnow\n+++ /y\tnow\n@@ -1 +1 @@\n-a\n+b\n"
        outcomes = read_regress(said, diffs)
        self.assertEqual(outcomes["boolean"], Outcome(PASSED))
        self.assertEqual(outcomes["guc"], Outcome(FAILED, "@@ -1 +1 @@\n-a\n+b"))
        self.assertEqual(list(outcomes), ["tablespace", "boolean", "guc"])

    def test_go(self):
        said = (
            '{"Action":"run","Package":"m/pgconn","Test":"TestA"}\n'
            '{"Action":"output","Package":"m/pgconn","Test":"TestA","Output":"why\\n"}\n'
            '{"Action":"fail","Package":"m/pgconn","Test":"TestA"}\n'
        )
        self.assertEqual(read_go(said, "m")["pgconn TestA"], Outcome(FAILED))

    def test_lists_of_binaries_become_lists_of_sources(self):
        self.assertEqual(with_sources("deb http://x y main\n"), "deb-src http://x y main\n")
        self.assertEqual(with_sources("Types: deb\nURIs: x\n"), "Types: deb-src\nURIs: x\n")


if __name__ == "__main__":
    unittest.main()
