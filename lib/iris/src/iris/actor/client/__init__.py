"""The caller's end: clients, pools, and the session of one process with one actor.

Nothing here runs in the actor's process; what both ends need is `transport`.
"""
