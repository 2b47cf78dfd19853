"""Why steps would run, for programs (see `marin.execution.script.explain`)."""

from marin.execution.script.explain import Explanation, Fate, explain_steps, explanation_lines

__all__ = ["Explanation", "Fate", "explain_steps", "explanation_lines"]
