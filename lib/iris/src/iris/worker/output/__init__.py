"""The output of tasks as written on their host: records, rate limits, free space.

The guardian runs this code; the worker reads and sends logs (`iris.worker.reports`).
"""
