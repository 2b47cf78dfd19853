-- The tokens of users, each of which can be revoked by itself. Of secrets only digests are here; a row without one stands
-- for the tokens of a user that were signed with the cluster's secret, as releases before this made them. Rows stay when
-- they are revoked.

CREATE TABLE user_tokens (
    token_id      TEXT PRIMARY KEY,
    user          TEXT NOT NULL,
    secret_sha256 TEXT NOT NULL,
    note          TEXT NOT NULL,
    created_by    TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    revoked_by    TEXT NOT NULL,
    revoked_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
