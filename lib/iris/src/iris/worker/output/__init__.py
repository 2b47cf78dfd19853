"""The output of tasks as it is written on their host: records, the rate at which it is taken, room on the disk.

The guardian runs this code; reading and sending a log is the worker's (`iris.worker.reports`).
"""
