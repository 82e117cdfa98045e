CREATE TABLE person (id bigint PRIMARY KEY, name text NOT NULL UNIQUE, password_hash text NOT NULL, notes int NOT NULL DEFAULT 0);
CREATE TABLE session (token text PRIMARY KEY, data bytea NOT NULL, expiry timestamptz NOT NULL);
CREATE TABLE token (hash bytea PRIMARY KEY, person bigint NOT NULL REFERENCES person, made timestamptz NOT NULL DEFAULT now());
CREATE TABLE note (id uuid PRIMARY KEY, person bigint NOT NULL REFERENCES person, text text NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY, changed timestamptz NOT NULL);
-- The password of each is `a password`.
INSERT INTO person (id, name, password_hash) SELECT n + 1, 'user-' || n, '$2a$08$6W.1qE9h8QF/R19lwGOWQ.75eCnUbB2s/wvD/HIiX8WD9S0j5hrmu' FROM generate_series(0, 7) AS n;
