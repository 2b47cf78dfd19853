"""The module path from which older programs import calls that a task makes at its start."""
