"""Runs of bare step specs (see `marin.execution.run.step_runner`)."""

from marin.execution.run.step_runner import StepRunner, check_cache, run_step

__all__ = ["StepRunner", "check_cache", "run_step"]
