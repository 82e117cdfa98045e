"""A recording as tables."""

import duckdb

from hindcast._command import options, run


class Trace:
    """A recording, in a DuckDB connection of its own. Each table is a relation: `.df()`, `.arrow()`, `.pl()`, `.filter(…)`."""

    def __init__(self, location, **given):
        self.location = location
        self.connection = duckdb.connect()
        self.connection.execute(run("export", "--trace", location, "--sql", "-", *options(given)))

    def __repr__(self):
        return f"hindcast.open({str(self.location)!r})"

    def sql(self, query):
        """A query over `requests`, `transactions`, `snapshots`, `wrote`, `saw`, `unseen`, `statements`, and `raw.bases` and the like."""
        return self.connection.sql(query)

    @property
    def requests(self):
        return self.connection.view("requests")

    @property
    def transactions(self):
        return self.connection.view("transactions")

    @property
    def snapshots(self):
        return self.connection.view("snapshots")

    @property
    def wrote(self):
        """Which tables each transaction wrote."""
        return self.connection.view("wrote")

    @property
    def saw(self):
        """Whose writes each statement could see."""
        return self.connection.view("saw")

    @property
    def unseen(self):
        """Who wrote at the same time, and was not seen."""
        return self.connection.view("unseen")

    def close(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def open(location, **given):
    """Opens a recording that is in a folder. It is read where it lies, when a table is asked."""
    return Trace(location, **given)
