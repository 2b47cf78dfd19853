"""Moving experiments of the ancestor here: `python -m marin.migrate` (docs/migrating.md).

`check` reads scripts without running them (`check`), by what is here (`names`) and what is known to have gone elsewhere
(`advice`); `paths` compares the steps of a script with an existing bucket (`paths`).
"""
