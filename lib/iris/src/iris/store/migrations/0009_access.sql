-- Who may join: tokens for new workers, and the credentials that those got. Of secrets only digests are here. Rows stay
-- when they are revoked or used up: they say who let whom in, and when.

CREATE TABLE join_tokens (
    token_id      TEXT PRIMARY KEY,
    secret_sha256 TEXT NOT NULL,
    note          TEXT NOT NULL,
    created_by    TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    max_uses      INTEGER NOT NULL,
    uses          INTEGER NOT NULL,
    revoked_by    TEXT NOT NULL,
    revoked_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE worker_credentials (
    secret_sha256 TEXT PRIMARY KEY,
    worker_id     TEXT NOT NULL,
    token_id      TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    revoked_by    TEXT NOT NULL,
    revoked_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
