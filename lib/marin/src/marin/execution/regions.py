"""The error for a step whose paths lie in several regions (see `marin.execution.config.regions`)."""

from marin.execution.config.regions import RegionConflict

__all__ = ["RegionConflict"]
