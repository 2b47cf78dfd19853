"""The descriptors that a command inherits, and the variables that describe them."""

import contextlib
import os
from dataclasses import replace

from iris.worker.processes import ProcessSpec


def knowing_its_pipes(spec: ProcessSpec, out: int, err: int) -> ProcessSpec:
    """Return the spec with a variable that names the task's log pipes, so that the task does not repeat its child jobs'
    logs there.

    Args:
        spec: The task's process.
        out: Descriptor of the pipe of its standard output.
        err: Descriptor of the pipe of its standard error.
    """
    if "IRIS_JOB_ID" not in spec.env:
        return spec
    names = []
    for found in (os.fstat(out), os.fstat(err)):
        names.append(f"{found.st_dev}:{found.st_ino}")
    return replace(spec, env={**spec.env, "IRIS_OUTPUT_PIPES": ",".join(names)})


def keep_descriptors_private() -> None:
    """Prevent children from inheriting this process's inherited descriptors, such as a pipe that its parent reads."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
                os.set_inheritable(int(name), False)
