ALTER TABLE workers ADD COLUMN cordon_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN strikes INTEGER NOT NULL DEFAULT 0;

CREATE TABLE budgets (
    user       TEXT PRIMARY KEY,
    max_weight REAL NOT NULL,        -- 0: no limit
    max_band   INTEGER NOT NULL
) WITHOUT ROWID;
