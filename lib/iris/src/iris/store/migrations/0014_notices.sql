-- Ends of jobs that somebody is yet to be told of, by the name of the delivery.

CREATE TABLE notices (
    name TEXT PRIMARY KEY
) WITHOUT ROWID;
