-- Environment variables may hold secrets: they get a table of their own, which `iris query` never reads.

CREATE TABLE job_env_vars (
    job_id   TEXT PRIMARY KEY,
    env_vars TEXT NOT NULL            -- JSON object; no row: none
) WITHOUT ROWID;

INSERT INTO job_env_vars
    SELECT job_id, json_extract(spec, '$.env_vars') FROM job_specs WHERE json_type(spec, '$.env_vars') IS NOT NULL;
UPDATE job_specs SET spec = json_remove(spec, '$.env_vars') WHERE json_type(spec, '$.env_vars') IS NOT NULL;
