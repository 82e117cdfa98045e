-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION hindcast" to load this file. \quit

-- Takes records out of the ring, the oldest first. For this session they are gone when the
-- transaction commits that took them. Up to sixteen sessions can take at a time, and each is given
-- all records from its first call on; what is in the ring then is the first call's.
CREATE FUNCTION take(
    max_records int DEFAULT 10000,
    OUT epoch int8,                     -- of the ring: another one, and what was in it is gone
    OUT lost int8,                      -- records lost in this epoch before this one was written
    OUT database oid,
    OUT pid int4,
    OUT backend_start timestamptz,      -- as in pg_stat_activity
    OUT backend_type text,              -- likewise, and "background worker" for those of all kinds
    OUT ordinal int8,                   -- of the transaction in its session, from 1
    OUT xid xid8,                       -- null: it has none
    OUT subxids xid8[],                 -- ended as the transaction did
    OUT aborted_subxids xid8[],         -- rolled back by themselves
    OUT isolation text,
    OUT started timestamptz,            -- now()
    OUT statements int4,                -- sent by the client, BEGIN and COMMIT included
    OUT snapshots text[],               -- as pg_current_snapshot(), each where it differs from the one before
    OUT snapshot_statements int4[],     -- number of the statement that took it, from 1
    OUT snapshot_nested bool[],         -- taken by a function, trigger or other statement inside it
    OUT rechecked int4[],               -- statements that waited for another transaction, or went on with a newer row
    OUT ended text,                     -- commit, abort, terminated, prepare, commit prepared, rollback prepared
    OUT ended_at timestamptz,
    OUT end_lsn pg_lsn,                 -- end of the commit record; null: none was written
    OUT gid text,                       -- of a prepared transaction
    OUT left_out int4,                  -- snapshots, subtransactions and the like that are missing here
    OUT drawn text[]                    -- what nextval(), clock_timestamp() and the like returned, unless it was rolled back
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'hindcast_take'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

-- The same records as they are in memory, for a program that reads very many. See
-- hindcast_take_binary in the library's source for what they look like. One is taken even if it is
-- longer than this many bytes.
CREATE FUNCTION take_binary(
    max_bytes int DEFAULT 4194304,
    OUT epoch int8,
    OUT bytes_left int8,                -- of records that were not taken
    OUT records bytea
)
RETURNS record
AS 'MODULE_PATHNAME', 'hindcast_take_binary'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

-- Null, apart from the version: the library is not in shared_preload_libraries.
CREATE FUNCTION status(
    OUT version text,
    OUT epoch int8,
    OUT ring_size int8,
    OUT used int8,
    OUT records int8,
    OUT lost int8,
    OUT readers int4[]                  -- processes that take records
)
RETURNS record
AS 'MODULE_PATHNAME', 'hindcast_status'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

-- What the planner puts in place of an identity column's own expression, so that what it draws is
-- noted. It refuses other calls.
CREATE FUNCTION identity_nextval(sequence oid)
RETURNS int8
AS 'MODULE_PATHNAME', 'hindcast_identity_nextval'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

REVOKE ALL ON FUNCTION take(int) FROM PUBLIC;
REVOKE ALL ON FUNCTION take_binary(int) FROM PUBLIC;
REVOKE ALL ON FUNCTION status() FROM PUBLIC;
