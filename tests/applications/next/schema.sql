CREATE TABLE people (
    id serial PRIMARY KEY,
    name text NOT NULL UNIQUE,
    password text NOT NULL
);

CREATE TABLE notes (
    id serial PRIMARY KEY,
    owner integer NOT NULL REFERENCES people,
    title text NOT NULL,
    status text NOT NULL DEFAULT 'draft',
    created timestamptz NOT NULL DEFAULT now(),
    changed timestamptz
);

CREATE INDEX ON notes (owner);

CREATE TABLE tags (
    name text PRIMARY KEY,
    uses integer NOT NULL
);
