-- The place of this database in the history that is kept off the machine (docs/durability.md).

CREATE TABLE replication (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    sequence   INTEGER NOT NULL,      -- of the last commit
    generation INTEGER NOT NULL       -- the controller's lease under which it was made; 0: nothing is replicated
);
INSERT INTO replication VALUES (1, 0, 0);

-- Commits that are not known to be off the machine; written in their own transaction, so a crash leaves no gap.
CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY,
    at_ms    INTEGER NOT NULL,
    payload  TEXT NOT NULL            -- JSON (iris.store.ops)
);
