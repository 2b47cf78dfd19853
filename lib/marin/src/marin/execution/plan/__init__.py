"""The plan of a run, made before anything runs: select steps, merge equal ones, refuse collisions.

Nothing here starts a step.
"""
