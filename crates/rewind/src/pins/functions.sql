-- Replacements for functions of the catalog. See the module's documentation for why each is written the way it is.
-- Everything is qualified: it runs under the search_path of whoever calls.

CREATE TABLE IF NOT EXISTS pg_catalog.hindcast_reserved (
    sequence oid NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (sequence, first)
);
GRANT SELECT ON pg_catalog.hindcast_reserved TO PUBLIC;

-- The numbers that sequences had in the recording, by what they are called, and by the numbers of those that were made since.
CREATE TABLE IF NOT EXISTS pg_catalog.hindcast_named (name text PRIMARY KEY, recorded oid NOT NULL);
CREATE TABLE IF NOT EXISTS pg_catalog.hindcast_made (sequence oid PRIMARY KEY, recorded oid NOT NULL);
GRANT SELECT ON pg_catalog.hindcast_made TO PUBLIC;

-- Makes defaults of the identity columns of these tables, or of all (NULL), and tells which they were. The sequence stays the
-- same object. Since Postgres 17 the partitions of a table have identity columns that share the sequence of its root.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_defaults(oid[]) RETURNS SETOF text
    LANGUAGE plpgsql SET search_path = '' AS
$function$
DECLARE
    v_own record;
BEGIN
    FOR v_own IN
        SELECT a.attrelid::regclass AS "table", a.attnum, a.attname, d.objid::regclass AS sequence FROM pg_attribute a
        JOIN pg_attribute root ON root.attrelid = coalesce(pg_partition_root(a.attrelid), a.attrelid) AND root.attname = a.attname
        JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = root.attrelid AND d.refobjsubid = root.attnum AND d.deptype IN ('i', 'a')
        JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
        WHERE a.attidentity <> '' AND NOT a.attisdropped AND ($1 IS NULL OR a.attrelid = ANY ($1))
        ORDER BY a.attrelid::regclass::text, a.attname::text
    LOOP
        UPDATE pg_attribute SET attidentity = '' WHERE attrelid = v_own."table" AND attnum = v_own.attnum;
        UPDATE pg_depend SET deptype = 'a' WHERE classid = 'pg_class'::regclass AND objid = v_own.sequence
            AND refclassid = 'pg_class'::regclass AND deptype = 'i';
        EXECUTE format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT pg_catalog.nextval(%L::regclass)',
            v_own."table", v_own.attname, v_own.sequence);
        EXECUTE format('GRANT USAGE ON SEQUENCE %s TO PUBLIC', v_own.sequence);
        RETURN NEXT concat(v_own."table", '.', v_own.attname);
    END LOOP;
END
$function$;

-- Whoever makes a sequence may have few rights. What cannot be done leaves what was made as it is.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_make() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET allow_system_table_mods = on AS
$function$
DECLARE
    v_made record;
BEGIN
    FOR v_made IN
        SELECT c.objid, n.recorded FROM pg_event_trigger_ddl_commands() c
        JOIN hindcast_named n ON n.name = c.object_identity WHERE c.object_type = 'sequence'
    LOOP
        INSERT INTO hindcast_made VALUES (v_made.objid, v_made.recorded) ON CONFLICT DO NOTHING;
    END LOOP;
    PERFORM hindcast_defaults(array_agg(t.oid)) FROM pg_event_trigger_ddl_commands() c
        JOIN pg_class t ON t.oid = c.objid AND t.relpersistence <> 't' WHERE c.object_type = 'table'
        HAVING count(*) > 0;
EXCEPTION WHEN OTHERS THEN
    RAISE LOG 'hindcast: what was made is not pinned: %', SQLERRM;
END
$function$;
DROP EVENT TRIGGER IF EXISTS hindcast_make;
CREATE EVENT TRIGGER hindcast_make ON ddl_command_end
    WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE SEQUENCE') EXECUTE FUNCTION pg_catalog.hindcast_make();

-- The statement that comes next goes on with the snapshot that was taken down, whoever sends it.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_next_snapshot() RETURNS text
    LANGUAGE sql VOLATILE SECURITY DEFINER AS
$function$
    SELECT pg_catalog.set_config('hindcast.next_snapshot', pg_catalog.current_setting('hindcast_pins.snapshot'), true)
$function$;

-- The originals, under names of ours.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_nextval(regclass) RETURNS bigint
    LANGUAGE internal VOLATILE STRICT AS 'nextval_oid';
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_currval(regclass) RETURNS bigint
    LANGUAGE internal VOLATILE STRICT AS 'currval_oid';
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_lastval() RETURNS bigint
    LANGUAGE internal VOLATILE STRICT AS 'lastval';
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_now() RETURNS timestamptz
    LANGUAGE internal STABLE STRICT PARALLEL SAFE COST 1 AS 'now';
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_statement_timestamp() RETURNS timestamptz
    LANGUAGE internal STABLE STRICT PARALLEL SAFE COST 1 AS 'statement_timestamp';

CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_clock_timestamp() RETURNS timestamptz
    LANGUAGE internal VOLATILE STRICT PARALLEL SAFE COST 1 AS 'clock_timestamp';

CREATE OR REPLACE FUNCTION pg_catalog.hindcast_nextval(regclass) RETURNS bigint
    LANGUAGE plpgsql VOLATILE STRICT AS
$function$
DECLARE
    v_queues CONSTANT text := pg_catalog.current_setting('hindcast_pins.sequences', true);
    v_last CONSTANT text := pg_catalog.current_setting('hindcast_pins.lastval', true);
    v_recorded CONSTANT oid := coalesce(
        (SELECT m.recorded FROM pg_catalog.hindcast_made m WHERE m.sequence OPERATOR(pg_catalog.=) $1::pg_catalog.oid),
        $1::pg_catalog.oid);
    v_start int;
    v_rest text;
    v_run text;
    v_value bigint;
    v_count bigint;
BEGIN
    IF v_queues OPERATOR(pg_catalog.<>) '' THEN
        v_rest := pg_catalog.concat(';', v_recorded, ':');
        v_start := pg_catalog.strpos(v_queues, v_rest);
        IF v_start OPERATOR(pg_catalog.>) 0 THEN
            v_start := v_start OPERATOR(pg_catalog.+) pg_catalog.length(v_rest);
            v_rest := pg_catalog.substr(v_queues, v_start);
            v_run := pg_catalog.split_part(pg_catalog.split_part(v_rest, ';', 1), ' ', 1);
            IF v_run OPERATOR(pg_catalog.<>) '' THEN
                v_value := pg_catalog.split_part(v_run, '*', 1);
                v_count := pg_catalog.concat('0', pg_catalog.split_part(v_run, '*', 2));
                v_rest := pg_catalog.substr(v_rest, pg_catalog.length(v_run) OPERATOR(pg_catalog.+) 1);
                IF v_count OPERATOR(pg_catalog.>) 1 THEN
                    v_run := pg_catalog.concat(
                        v_value OPERATOR(pg_catalog.+) 1, '*', v_count OPERATOR(pg_catalog.-) 1);
                ELSE
                    v_run := '';
                    v_rest := pg_catalog.ltrim(v_rest, ' ');
                END IF;
                PERFORM pg_catalog.set_config('hindcast_pins.sequences',
                    pg_catalog.concat(pg_catalog.left(v_queues, v_start OPERATOR(pg_catalog.-) 1), v_run, v_rest), true);
                -- The session's memory of the sequence is the executor's own; this one takes precedence.
                PERFORM pg_catalog.set_config('hindcast_pins.lastval', v_value::pg_catalog.text, false);
                PERFORM pg_catalog.set_config(
                    pg_catalog.concat('hindcast_pins.currval_', $1::pg_catalog.oid), v_value::pg_catalog.text, false);
                RETURN v_value;
            END IF;
        END IF;
    END IF;

    LOOP
        v_value := pg_catalog.hindcast_original_nextval($1);
        -- Ranges do not overlap.
        EXIT WHEN coalesce(v_value OPERATOR(pg_catalog.>) (
            SELECT r.last FROM pg_catalog.hindcast_reserved r
            WHERE r.sequence OPERATOR(pg_catalog.=) v_recorded
            AND r.first OPERATOR(pg_catalog.<=) v_value
            ORDER BY r.first DESC LIMIT 1), true);
    END LOOP;
    IF v_last OPERATOR(pg_catalog.<>) '' THEN
        PERFORM pg_catalog.set_config('hindcast_pins.lastval', '', false);
        PERFORM pg_catalog.set_config(pg_catalog.concat('hindcast_pins.currval_', $1::pg_catalog.oid), '', false);
    END IF;
    RETURN v_value;
END
$function$;

CREATE OR REPLACE FUNCTION pg_catalog.hindcast_currval(regclass) RETURNS bigint
    LANGUAGE plpgsql VOLATILE STRICT AS
$function$
DECLARE
    v_pinned CONSTANT text :=
        pg_catalog.current_setting(pg_catalog.concat('hindcast_pins.currval_', $1::pg_catalog.oid), true);
BEGIN
    IF v_pinned OPERATOR(pg_catalog.<>) '' THEN
        RETURN v_pinned::pg_catalog.int8;
    END IF;
    RETURN pg_catalog.hindcast_original_currval($1);
END
$function$;

-- The next UUID of a queue; null if there is none.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_uuid(text) RETURNS uuid
    LANGUAGE plpgsql VOLATILE STRICT AS
$function$
DECLARE
    v_queues CONSTANT text := pg_catalog.current_setting('hindcast_pins.uuids', true);
    v_name CONSTANT text := pg_catalog.concat(';', $1, ':');
    v_start int;
    v_value text;
BEGIN
    v_start := pg_catalog.strpos(v_queues, v_name);
    IF v_start OPERATOR(pg_catalog.>) 0 THEN
        v_start := v_start OPERATOR(pg_catalog.+) pg_catalog.length(v_name);
        v_value := pg_catalog.split_part(pg_catalog.substr(v_queues, v_start, 37), ';', 1);
        IF v_value OPERATOR(pg_catalog.<>) '' THEN
            -- With the space behind it, if there are more.
            PERFORM pg_catalog.set_config('hindcast_pins.uuids', pg_catalog.concat(
                pg_catalog.left(v_queues, v_start OPERATOR(pg_catalog.-) 1),
                pg_catalog.substr(v_queues, v_start OPERATOR(pg_catalog.+) pg_catalog.length(v_value))), true);
            RETURN pg_catalog.rtrim(v_value)::pg_catalog.uuid;
        END IF;
    END IF;
    RETURN NULL;
END
$function$;

-- A strict function is inlined if its body is strict as well and uses each argument once: a single call is.
CREATE OR REPLACE FUNCTION pg_catalog.nextval(regclass) RETURNS bigint
    LANGUAGE sql VOLATILE STRICT AS 'SELECT pg_catalog.hindcast_nextval($1)';
CREATE OR REPLACE FUNCTION pg_catalog.currval(regclass) RETURNS bigint
    LANGUAGE sql VOLATILE STRICT AS 'SELECT pg_catalog.hindcast_currval($1)';

-- Without arguments strictness means nothing, and a CASE would forbid inlining a strict function.
CREATE OR REPLACE FUNCTION pg_catalog.lastval() RETURNS bigint
    LANGUAGE sql VOLATILE CALLED ON NULL INPUT AS
$function$
SELECT CASE WHEN pg_catalog.current_setting('hindcast_pins.lastval', true) OPERATOR(pg_catalog.<>) ''
    THEN pg_catalog.current_setting('hindcast_pins.lastval', true)::pg_catalog.int8
    ELSE pg_catalog.hindcast_original_lastval() END
$function$;
CREATE OR REPLACE FUNCTION pg_catalog.now() RETURNS timestamptz
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE COST 1 AS
$function$
SELECT CASE WHEN pg_catalog.current_setting('hindcast_pins.now', true) OPERATOR(pg_catalog.<>) ''
    THEN pg_catalog.current_setting('hindcast_pins.now', true)::pg_catalog.timestamptz
    ELSE pg_catalog.hindcast_original_now() END
$function$;
CREATE OR REPLACE FUNCTION pg_catalog.transaction_timestamp() RETURNS timestamptz
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE COST 1 AS 'SELECT pg_catalog.now()';
CREATE OR REPLACE FUNCTION pg_catalog.statement_timestamp() RETURNS timestamptz
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE COST 1 AS
$function$
SELECT CASE WHEN pg_catalog.current_setting('hindcast_pins.now', true) OPERATOR(pg_catalog.<>) ''
    THEN pg_catalog.current_setting('hindcast_pins.now', true)::pg_catalog.timestamptz
    ELSE pg_catalog.hindcast_original_statement_timestamp() END
$function$;

-- A rewound database has a name of its own beside the recorded one. Who asks for the recorded one is told its name, and
-- so are views of information_schema, which show it: `WHERE table_catalog = 'app'`.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_current_database() RETURNS name
    LANGUAGE internal STABLE STRICT PARALLEL SAFE COST 1 AS 'current_database';
CREATE OR REPLACE FUNCTION pg_catalog.current_database() RETURNS name
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE COST 1 AS
$function$
SELECT CASE WHEN pg_catalog.current_setting('hindcast_pins.database', true) OPERATOR(pg_catalog.<>) ''
    THEN pg_catalog.current_setting('hindcast_pins.database', true)::pg_catalog.name
    ELSE pg_catalog.hindcast_original_current_database() END
$function$;

-- The next word of a setting that has some.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_next(text) RETURNS text
    LANGUAGE plpgsql VOLATILE STRICT AS
$function$
DECLARE
    v_words CONSTANT text := pg_catalog.current_setting($1, true);
    v_word CONSTANT text := pg_catalog.split_part(v_words, ' ', 1);
BEGIN
    PERFORM pg_catalog.set_config($1,
        pg_catalog.substr(v_words, pg_catalog.length(v_word) OPERATOR(pg_catalog.+) 2), true);
    RETURN v_word;
END
$function$;

-- What it was when recorded may be known. Otherwise it is as long after the recorded now() as it is after the real one.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_running_clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL SAFE COST 1 AS
$function$
SELECT CASE WHEN pg_catalog.current_setting('hindcast_pins.now', true) OPERATOR(pg_catalog.<>) ''
    THEN pg_catalog.current_setting('hindcast_pins.now', true)::pg_catalog.timestamptz OPERATOR(pg_catalog.+)
        (pg_catalog.hindcast_original_clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.hindcast_original_now())
    ELSE pg_catalog.hindcast_original_clock_timestamp() END
$function$;
CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz
    LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE COST 1 AS
$function$
SELECT CASE WHEN pg_catalog.current_setting('hindcast_pins.clocks', true) OPERATOR(pg_catalog.<>) ''
    THEN pg_catalog.hindcast_next('hindcast_pins.clocks')::pg_catalog.timestamptz
    ELSE pg_catalog.hindcast_running_clock() END
$function$;
CREATE OR REPLACE FUNCTION pg_catalog.timeofday() RETURNS text
    LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL SAFE COST 1 AS
    $function$SELECT pg_catalog.to_char(pg_catalog.hindcast_running_clock(), 'Dy Mon DD HH24:MI:SS.US YYYY TZ')$function$;

CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_random() RETURNS float8
    LANGUAGE internal VOLATILE STRICT PARALLEL RESTRICTED COST 1 AS 'drandom';
CREATE OR REPLACE FUNCTION pg_catalog.random() RETURNS float8
    LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE COST 1 AS
$function$
SELECT CASE WHEN pg_catalog.current_setting('hindcast_pins.randoms', true) OPERATOR(pg_catalog.<>) ''
    THEN pg_catalog.hindcast_next('hindcast_pins.randoms')::pg_catalog.float8
    ELSE pg_catalog.hindcast_original_random() END
$function$;

-- age(t) counts from CURRENT_DATE.
CREATE OR REPLACE FUNCTION pg_catalog.age(timestamptz) RETURNS interval
    LANGUAGE sql STABLE STRICT PARALLEL SAFE COST 1 AS
    'SELECT pg_catalog.age(pg_catalog.now()::pg_catalog.date::pg_catalog.timestamptz, $1)';
CREATE OR REPLACE FUNCTION pg_catalog.age(timestamp) RETURNS interval
    LANGUAGE sql STABLE STRICT PARALLEL SAFE COST 1 AS
    'SELECT pg_catalog.age(pg_catalog.now()::pg_catalog.date::pg_catalog.timestamp, $1)';

-- What keywords are rewritten to; named like them, so that result columns keep their names.
CREATE OR REPLACE FUNCTION pg_catalog."current_timestamp"() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE COST 1 AS 'SELECT pg_catalog.now()';
CREATE OR REPLACE FUNCTION pg_catalog."localtimestamp"() RETURNS timestamp
    LANGUAGE sql STABLE PARALLEL SAFE COST 1 AS 'SELECT pg_catalog.now()::pg_catalog.timestamp';
CREATE OR REPLACE FUNCTION pg_catalog."current_date"() RETURNS date
    LANGUAGE sql STABLE PARALLEL SAFE COST 1 AS 'SELECT pg_catalog.now()::pg_catalog.date';
CREATE OR REPLACE FUNCTION pg_catalog."current_time"() RETURNS timetz
    LANGUAGE sql STABLE PARALLEL SAFE COST 1 AS 'SELECT pg_catalog.now()::pg_catalog.timetz';
CREATE OR REPLACE FUNCTION pg_catalog."localtime"() RETURNS time
    LANGUAGE sql STABLE PARALLEL SAFE COST 1 AS 'SELECT pg_catalog.now()::pg_catalog.time';
CREATE OR REPLACE FUNCTION pg_catalog."current_catalog"() RETURNS name
    LANGUAGE sql STABLE PARALLEL SAFE COST 1 AS 'SELECT pg_catalog.current_database()';

-- Where a default is told (a program that looks at its columns, \d), the keywords are there again.
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_keywords(text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS
$function$
DECLARE
    v_text text := $1;
    v_word text[];
BEGIN
    IF pg_catalog.strpos(v_text, '"()') OPERATOR(pg_catalog.=) 0 THEN
        RETURN v_text;
    END IF;
    -- Each with the type that takes its precision.
    FOREACH v_word SLICE 1 IN ARRAY ARRAY[
        ['current_timestamp', 'timestamp(N) with time zone'], ['localtimestamp', 'timestamp(N) without time zone'],
        ['current_time', 'time(N) with time zone'], ['localtime', 'time(N) without time zone'],
        ['current_date', ''], ['current_catalog', '']
    ] LOOP
        v_text := pg_catalog.regexp_replace(
            v_text,
            '\(?"' || v_word[1] || '"\(\)\)?::' || pg_catalog.replace(v_word[2], '(N)', '\(([0-9])\)'),
            pg_catalog.upper(v_word[1]) || '(\1)', 'g');
        v_text := pg_catalog.replace(v_text, '"' || v_word[1] || '"()', pg_catalog.upper(v_word[1]));
    END LOOP;
    RETURN v_text;
END
$function$;
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_pg_get_expr(pg_node_tree, oid) RETURNS text
    LANGUAGE internal STABLE STRICT PARALLEL SAFE COST 1 AS 'pg_get_expr';
CREATE OR REPLACE FUNCTION pg_catalog.pg_get_expr(pg_node_tree, oid) RETURNS text
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE COST 1 AS
    'SELECT pg_catalog.hindcast_keywords(pg_catalog.hindcast_original_pg_get_expr($1, $2))';
CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_pg_get_expr(pg_node_tree, oid, boolean) RETURNS text
    LANGUAGE internal STABLE STRICT PARALLEL SAFE COST 1 AS 'pg_get_expr_ext';
CREATE OR REPLACE FUNCTION pg_catalog.pg_get_expr(pg_node_tree, oid, boolean) RETURNS text
    LANGUAGE sql STABLE CALLED ON NULL INPUT PARALLEL SAFE COST 1 AS
    'SELECT pg_catalog.hindcast_keywords(pg_catalog.hindcast_original_pg_get_expr($1, $2, $3))';

-- A try for an advisory lock ends as it did when it was recorded: the next one does, after a setting says how. One that was
-- granted waits a while: whoever had the lock gave it back before, and may not have come to that yet.
-- For each: the original, what looks at the setting, and what is inlined.
DO $do$
DECLARE
    v_lock text;
    v_key text[];
BEGIN
    FOREACH v_lock IN ARRAY ARRAY['lock', 'lock_shared', 'xact_lock', 'xact_lock_shared'] LOOP
        -- The arguments, how the original is called that has them, and how they are passed on.
        FOREACH v_key SLICE 1 IN ARRAY ARRAY[['bigint', 'int8', '$1'], ['integer, integer', 'int4', '$1, $2']] LOOP
            EXECUTE pg_catalog.format(
                $format$
                CREATE OR REPLACE FUNCTION pg_catalog.hindcast_original_try_%1$s(%2$s) RETURNS boolean
                    LANGUAGE internal VOLATILE STRICT AS 'pg_try_advisory_%1$s_%3$s';
                CREATE OR REPLACE FUNCTION pg_catalog.hindcast_try_%1$s(%2$s) RETURNS boolean
                    LANGUAGE plpgsql VOLATILE STRICT AS
                $function$
                DECLARE
                    v_end CONSTANT text := pg_catalog.current_setting('hindcast_pins.try', true);
                    v_until timestamptz;
                BEGIN
                    IF v_end OPERATOR(pg_catalog.<>) '' THEN
                        PERFORM pg_catalog.set_config('hindcast_pins.try', '', false);
                        IF v_end OPERATOR(pg_catalog.=) 'refused' THEN
                            RETURN false;
                        END IF;
                        v_until := pg_catalog.hindcast_original_clock_timestamp() OPERATOR(pg_catalog.+) '1 s'::pg_catalog.interval;
                        WHILE pg_catalog.hindcast_original_clock_timestamp() OPERATOR(pg_catalog.<) v_until LOOP
                            IF pg_catalog.hindcast_original_try_%1$s(%4$s) THEN
                                RETURN true;
                            END IF;
                            PERFORM pg_catalog.pg_sleep(0.002);
                        END LOOP;
                    END IF;
                    RETURN pg_catalog.hindcast_original_try_%1$s(%4$s);
                END
                $function$;
                CREATE OR REPLACE FUNCTION pg_catalog.pg_try_advisory_%1$s(%2$s) RETURNS boolean
                    LANGUAGE sql VOLATILE STRICT AS 'SELECT pg_catalog.hindcast_try_%1$s(%4$s)'
                $format$,
                v_lock, v_key[1], v_key[2], v_key[3]);
        END LOOP;
    END LOOP;
END
$do$;
