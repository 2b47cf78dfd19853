"""The public types of iris: names, entry points, resources, constraints. Imports no transport."""
