"""Public types of iris: names, entry points, resources, constraints.

Plain values. Nothing here imports a transport or the controller.
"""
