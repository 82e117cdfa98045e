CREATE EXTENSION IF NOT EXISTS plpgsql;
CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s "fine"');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (a int, b text);
CREATE TYPE floats AS RANGE (subtype = float8);
CREATE TABLE all_types (
  k bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  b bool, i2 int2, i4 int4, i8 int8, o oid, f4 float4, f8 float8, n numeric, m money,
  t text, v varchar(20), c char(5), q "char", nm name, by bytea,
  d date, ti time, tz timetz, ts timestamp, tstz timestamptz, iv interval,
  u uuid, j json, jb jsonb, x xml, jp jsonpath,
  ip inet, net cidr, mac macaddr, mac8 macaddr8, bi bit(4), bv bit varying,
  p point, l line, ls lseg, bx box, pa path, po polygon, ci circle,
  tv tsvector, tq tsquery, r int4range, mr int4multirange, tr tstzrange, fr floats,
  ia int[], ta text[], aa int[][], pl pg_lsn, rc regclass, rp regprocedure, rt regtype,
  e mood, ea mood[], dm positive, pr pair, pra pair[],
  g text GENERATED ALWAYS AS (upper(t)) STORED
);
INSERT INTO all_types (b, i2, i4, i8, o, f4, f8, n, m, t, v, c, q, nm, by, d, ti, tz, ts, tstz, iv, u, j, jb, x, jp, ip, net, mac, mac8, bi, bv,
  p, l, ls, bx, pa, po, ci, tv, tq, r, mr, tr, fr, ia, ta, aa, pl, rc, rp, rt, e, ea, dm, pr, pra) VALUES
 (true, -32768, 2147483647, -9223372036854775808, 4294967295, 'NaN', '-Infinity', '12345678901234567890.000000000100', '-12.34',
  E'tab\there, newline\nthere, return\r, back\\slash, \\N, \\., bell\b, über, 日本, 🦀, quote '' "', 'v', 'c', 'q', 'nm', '\x00ff5c0a',
  '4713-01-01 BC', '24:00', '01:02:03.000004+05:30', 'infinity', '2024-02-29 12:00:00.123456+02', '-1 year 2 mons -3 days 04:05:06.789',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a" :  [1, 2.50, "\u00e9"]}', '{"a": [1, 2.50, null]}', '<a b="c">d</a>', '$.a[*] ? (@ > 1)',
  '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '1010', '110',
  '(1,2)', '{1,2,3}', '[(1,2),(3,4)]', '(3,4),(1,2)', '((1,2),(3,4))', '((1,2),(3,4),(5,6))', '<(1,2),3>',
  'a:1 b:2A', 'a & !b', '[1,5)', '{[1,2),[5,9)}', '[2024-01-01,)', '[0.1,0.30000000000000004)',
  '{1,NULL,3}', E'{"a,b",NULL,"\\"x\\\\"}', '{{1,2},{3,4}}', '16/B374D848', 'all_types', 'upper(text)', 'mood',
  'it''s "fine"', '{sad,"so so",NULL}', 7, '(1,"a ""b"", c")', ARRAY['(1,x)', NULL]::pair[]),
 (DEFAULT, 0, 0, 0, 0, 1e-37, 0.1, 'NaN', 0, '', '', '', '', '', '', 'infinity', '00:00', '00:00+00', '-infinity', 'infinity', '0',
  NULL, 'null', 'null', '', '$', '::1', '::/0', NULL, NULL, '0000', '', '(NaN,0)', NULL, NULL, NULL, '[(0,0)]', NULL, NULL,
  '', '', 'empty', '{}', '(,)', 'empty', '{}', '{}', '{}', '0/0', NULL, NULL, NULL, 'sad', '{}', 1, '(,)', '{}');
INSERT INTO all_types DEFAULT VALUES;
INSERT INTO all_types (t) SELECT repeat('long ' || n, 5000) FROM generate_series(1, 20) n;

CREATE SCHEMA "Odd ""Schema""";
CREATE TABLE "Odd ""Schema"""."a.b" ("Key" int PRIMARY KEY, "select" text, "drop me" int, "ü, """ text);
INSERT INTO "Odd ""Schema"""."a.b" SELECT n, n::text, n, 'x' || n FROM generate_series(1, 100) n;
ALTER TABLE "Odd ""Schema"""."a.b" DROP COLUMN "drop me";

CREATE TABLE parted (k int, region text, PRIMARY KEY (k, region)) PARTITION BY LIST (region);
CREATE TABLE parted_eu PARTITION OF parted FOR VALUES IN ('eu') PARTITION BY RANGE (k);
CREATE TABLE parted_eu_1 PARTITION OF parted_eu FOR VALUES FROM (0) TO (50);
CREATE TABLE parted_eu_2 (region text NOT NULL, extra int GENERATED ALWAYS AS (1) STORED, k int NOT NULL);
ALTER TABLE parted_eu_2 DROP COLUMN extra;
ALTER TABLE parted_eu ATTACH PARTITION parted_eu_2 FOR VALUES FROM (50) TO (1000);
CREATE TABLE parted_rest PARTITION OF parted DEFAULT;
INSERT INTO parted SELECT n, CASE n % 3 WHEN 0 THEN 'us' ELSE 'eu' END FROM generate_series(1, 200) n;

CREATE TABLE parent (k int PRIMARY KEY, v text);
CREATE TABLE child (extra int) INHERITS (parent);
ALTER TABLE child ADD PRIMARY KEY (k);
INSERT INTO parent SELECT n, 'parent' FROM generate_series(1, 10) n;
INSERT INTO child SELECT n, 'child', n FROM generate_series(1, 20) n;

CREATE TABLE empty (k serial PRIMARY KEY, v text UNIQUE);
CREATE TABLE one (k int PRIMARY KEY, "1" bigint);

CREATE TABLE referenced (k int PRIMARY KEY, sum int NOT NULL DEFAULT 0);
CREATE TABLE referring (k int PRIMARY KEY, r int NOT NULL REFERENCES referenced, CHECK (r < 1000));
CREATE FUNCTION add_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE referenced SET sum = sum + 1; RETURN NEW; END $$;
CREATE TRIGGER add_up BEFORE INSERT ON referring FOR EACH ROW EXECUTE FUNCTION add_up();
CREATE INDEX ON referring (r) WHERE r > 5;
CREATE VIEW both_of_them AS SELECT * FROM referring JOIN referenced USING (k);
CREATE MATERIALIZED VIEW materialized AS SELECT count(*) FROM referring;
INSERT INTO referenced VALUES (1), (2);
INSERT INTO referring VALUES (1, 2), (2, 1);
