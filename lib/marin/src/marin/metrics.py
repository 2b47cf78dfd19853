"""Metrics of steps: `log` records numbers, which `marin table` shows."""

from marin.execution.log.metric_log import log

__all__ = ["log"]
