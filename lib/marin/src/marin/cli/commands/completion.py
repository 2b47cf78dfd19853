"""`marin completion`: shell completion of commands, options, and names of runs and steps."""

from __future__ import annotations

from rigging.cli.completing import completion_command

completion = completion_command("marin")
