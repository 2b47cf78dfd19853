"""Reproducible experiments: a DAG of steps with content-addressed output paths."""
