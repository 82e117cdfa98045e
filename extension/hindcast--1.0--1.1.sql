-- 1.1 tells who takes records, and has several take them.
\echo Use "ALTER EXTENSION hindcast UPDATE" to load this file. \quit

DROP FUNCTION status();

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

REVOKE ALL ON FUNCTION status() FROM PUBLIC;
