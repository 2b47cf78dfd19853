"""The process that holds the tasks and their output, and that outlives the worker process.

The process imports neither gRPC nor asyncio, and its messages stay compatible with the previous release.
"""
