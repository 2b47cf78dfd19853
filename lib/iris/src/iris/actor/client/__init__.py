"""The caller's side: clients, pools, and the session between one process and one actor.

Nothing here runs in the actor's process. Code for both sides is in `transport`.
"""
