-- What the views mean: docs/sql.md.

-- As the command line writes it: 17, or 2.17 for the second recorder's.
CREATE OR REPLACE MACRO name_of(id) AS
    CASE WHEN id >> 48 = 0 THEN CAST(id AS VARCHAR)
         ELSE CAST(id >> 48 AS VARCHAR) || '.' || CAST(id & 281474976710655 AS VARCHAR) END;

CREATE OR REPLACE VIEW requests AS
SELECT id, name_of(id) AS name, arrived, arrived + to_microseconds(duration_us) AS ended, duration_us,
       method, target, split_part(target, '?', 1) AS path, outcome, status,
       * EXCLUDE (id, arrived, duration_us, method, target, outcome, status)
  FROM raw.requests;

CREATE OR REPLACE VIEW transactions AS
SELECT id, 't' || name_of(id) AS name, request, session, began, began + to_microseconds(duration_us) AS ended,
       duration_us, isolation, outcome, xid, snapshot_xmax,
       snapshot_xmax - COALESCE(snapshot_xmin_below, snapshot_in_progress_below[1], 0) AS snapshot_xmin,
       [snapshot_xmax - below FOR below IN snapshot_in_progress_below] AS snapshot_in_progress,
       shape,
       * EXCLUDE (id, request, session, began, duration_us, isolation, outcome, xid, shape, snapshot_xmax,
                  snapshot_xmin_below, snapshot_in_progress_below)
  FROM raw.transactions;

-- What the statements of a transaction saw: those from `from_statement` on, up to the one before
-- `before_statement`, or all that follow. Every committed id below xmax, but for those in progress.
CREATE OR REPLACE VIEW snapshots AS
SELECT id AS transaction, CAST(1 AS UINTEGER) AS from_statement, CAST(NULL AS UINTEGER) AS before_statement,
       snapshot_xmax AS xmax, [snapshot_xmax - below FOR below IN snapshot_in_progress_below] AS in_progress
  FROM raw.transactions
 WHERE snapshot_xmax IS NOT NULL AND COALESCE(len(statement_snapshots), 0) = 0
UNION ALL
SELECT transaction, own.statement + 1, following.statement + 1, xmax,
       [xmax - below FOR below IN statement_in_progress_below[upto - own.in_progress + 1:upto]]
  FROM (SELECT id AS transaction, statement_in_progress_below,
               statement_snapshots[place] AS own, statement_snapshots[place + 1] AS following,
               snapshot_xmax + CAST(list_sum([each.xmax_above FOR each IN statement_snapshots[1:place]]) AS BIGINT) AS xmax,
               CAST(list_sum([each.in_progress FOR each IN statement_snapshots[1:place]]) AS BIGINT) AS upto
          FROM (SELECT *, unnest(generate_series(1, len(statement_snapshots))) AS place
                  FROM raw.transactions
                 WHERE snapshot_xmax IS NOT NULL AND len(statement_snapshots) > 0));

-- Which tables a transaction wrote, by the text of its statements. Those that aborted wrote nothing.
CREATE OR REPLACE VIEW wrote AS
SELECT t.id AS transaction, t.request, t.xid, s.statement, unnest(s.writes) AS "table", s.text, t.began,
       t.began + to_microseconds(t.duration_us) AS ended
  FROM raw.transactions t JOIN statements s ON s.shape = t.shape
 WHERE t.xid IS NOT NULL AND t.outcome <> 'aborted';

-- Each table that a statement reads or writes, and each transaction that wrote this table.
CREATE OR REPLACE VIEW met AS
SELECT t.transaction, t.request, t.statement, t."table", w.transaction AS writer, w.request AS writer_request,
       w.xid < s.xmax AND NOT list_contains(s.in_progress, w.xid) AS is_seen,
       w.began < t.ended AND w.ended > t.began AS overlapped
  FROM (SELECT t.id AS transaction, t.request, s.statement, t.began,
               t.began + to_microseconds(t.duration_us) AS ended,
               unnest(list_distinct(list_concat(s.reads, s.writes))) AS "table"
          FROM raw.transactions t JOIN statements s ON s.shape = t.shape) t
  JOIN snapshots s ON s.transaction = t.transaction AND s.from_statement <= t.statement
                  AND (s.before_statement IS NULL OR t.statement < s.before_statement)
  JOIN (SELECT DISTINCT transaction, request, xid, "table", began, ended FROM wrote) w
    ON w."table" = t."table" AND w.transaction <> t.transaction;

-- Whose writes a statement could see, of tables that it reads or writes.
CREATE OR REPLACE VIEW saw AS
SELECT * EXCLUDE (is_seen) FROM met WHERE is_seen;

-- Who wrote such a table at the same time, and was not seen: what a race is made of.
CREATE OR REPLACE VIEW unseen AS
SELECT * EXCLUDE (is_seen, overlapped) FROM met WHERE overlapped AND NOT is_seen;
