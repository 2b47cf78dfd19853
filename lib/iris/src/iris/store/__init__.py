"""The controller's durable state in one SQLite file.

The only package with SQL. It converts rows to records and has no rules.
"""
