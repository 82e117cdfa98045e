-- Accounts with a ledger: a balance is the sum of an account's entries.

CREATE TABLE account (
    id serial PRIMARY KEY,
    owner text NOT NULL UNIQUE,
    opened_at timestamptz NOT NULL DEFAULT now(),
    closed boolean NOT NULL DEFAULT false
);

CREATE TABLE entry (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id int NOT NULL REFERENCES account,
    amount int NOT NULL,
    note jsonb,
    at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE INDEX entry_by_account ON entry (account_id);

CREATE TABLE preference (
    account_id int PRIMARY KEY REFERENCES account,
    settings jsonb NOT NULL,
    changes int NOT NULL DEFAULT 1,
    changed_at timestamptz NOT NULL DEFAULT now()
);
