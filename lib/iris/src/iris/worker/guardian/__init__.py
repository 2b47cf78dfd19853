"""The process that runs tasks, writes their logs, and outlives the worker process.

The process imports neither gRPC nor asyncio, and its messages stay compatible with the previous release.
"""
