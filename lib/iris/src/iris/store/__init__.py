"""The controller's durable state in one SQLite file.

The only package with SQL. It contains no rules.
"""
