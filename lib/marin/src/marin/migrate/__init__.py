"""Move experiments from marin's predecessor to marin: `python -m marin.migrate` (docs/migrating.md).

`check` inspects scripts without running them, using the names that exist here (`names`) and known replacements
(`advice`). `paths` compares the steps of a script with an existing bucket.
"""
