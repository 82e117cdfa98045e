"""Records tests/services/wallet.py, sends it transfers that meet, replays them, and looks at them with DuckDB.

main_job.py PORT DATABASE_URL TRACE WALLET
"""

import concurrent.futures
import os
import sys
import urllib.request

import hindcast

port, database, trace, wallet = sys.argv[1:]
url = f"http://127.0.0.1:{port}"
os.environ["DATABASE_URL"] = database


def send(at):
    # Always in the same direction: transfers that meet wait for each other, and are no deadlock.
    request = urllib.request.Request(f"{url}/{at % 4 * 2 + 1}/{at % 4 * 2}/1", method="POST")
    with urllib.request.urlopen(request) as answer:
        return answer.status


with hindcast.record([sys.executable, wallet, port, "1"], trace, url=url):
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        assert set(clients.map(send, range(24))) == {200}

verdict = hindcast.replay(trace, postgres=database).require()
assert verdict and verdict.counts["requests"] == 24 and verdict.from_ == "1", verdict

with hindcast.open(trace) as opened:
    assert opened.requests.count("*").fetchall() == [(24,)]
    assert opened.requests.select("arrived, ended").limit(1).fetchall()[0][0].tzinfo is not None
    # Some found that another transfer had come first, and tried again: what they wrote before is not told.
    assert opened.wrote.filter("\"table\" = 'account'").aggregate("count(DISTINCT request)").fetchall() == [(24,)]
    joined = opened.sql("SELECT count(*) FROM saw JOIN wrote ON wrote.transaction = saw.writer AND wrote.\"table\" = saw.\"table\"")
    assert joined.fetchall()[0][0] > 0, opened.saw

for wrong, code in (("not-there", 3), ("", 2)):
    try:
        hindcast.replay(wrong)
    except hindcast.HindcastError as error:
        assert error.exit_code == code and error.message, error
        assert code != 3 or error.hint, error
    else:
        raise AssertionError(f"a replay of {wrong!r} was run")
