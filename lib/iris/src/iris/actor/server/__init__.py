"""The actor's side: hosted objects, their call queues, and the sessions of their callers.

Nothing here runs in the caller's process. Code for both sides is in `transport`.
"""
