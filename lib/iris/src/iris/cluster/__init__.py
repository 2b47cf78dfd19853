"""Public types of iris: names, entry points, resources, constraints.

Plain values only: nothing here imports a transport or the controller.
"""
