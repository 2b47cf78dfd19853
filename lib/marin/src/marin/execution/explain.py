"""Why steps would run, for programs (see `marin.execution.script.explain`)."""

from marin.execution.script.explain import Explanation, PlannedAction, explain_steps, explanation_lines

__all__ = ["Explanation", "PlannedAction", "explain_steps", "explanation_lines"]
