"""Experiments: each module builds a DAG of steps and hands it to `executor_main`."""
