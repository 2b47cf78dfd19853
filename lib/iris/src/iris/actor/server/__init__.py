"""The actor's end: hosted objects, their call queues, and the sessions of their callers.

Nothing here runs in the caller's process; what both ends need is `transport`.
"""
