"""What a user's tests look like, of which one fails: run by pytest with the plugin of the wheel."""

import os
import urllib.request


def move(source, target, amount):
    url = f"{os.environ['SERVICE']}/{source}/{target}/{amount}"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
        return int(answer.read())


def test_money_is_moved():
    assert move(0, 2, 10) == 90


def test_that_fails():
    assert move(0, 2, 10) == move(0, 2, 10)
