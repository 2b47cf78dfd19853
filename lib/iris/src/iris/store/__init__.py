"""The controller's durable state in one SQLite file.

The only package with SQL. Rows in, records out; no rule.
"""
