"""Distributed programs over the tasks of a job."""

from iris.runtime.torch_init import initialize_torch

__all__ = ["initialize_torch"]
