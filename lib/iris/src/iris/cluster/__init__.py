"""Public types of iris: names, entry points, resources, constraints.

These are plain values. Nothing here imports a transport or the controller.
"""
