"""The actor's end: hosted objects, their queues of calls, and the sessions of their callers."""
