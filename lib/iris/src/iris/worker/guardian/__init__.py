"""The process that holds the tasks and their output, and outlives the worker process.

The process imports neither gRPC nor asyncio, and messages stay compatible with the release before.
"""
