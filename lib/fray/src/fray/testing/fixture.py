"""Tools of a contract test: a client, requests that any backend can run, unique names, signals."""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fray.capabilities import BackendCapabilities
from fray.protocols import Client, JobHandle
from fray.testing.harness import BackendHarness
from fray.testing.signals import Flag, Tally
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, ResourceConfig

LONG = 60.0
"""Seconds after which a contract test counts as hanging."""

SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="256m", disk="64m")
"""Resources small enough to run many jobs at once on one machine."""


@dataclass(frozen=True, slots=True)
class BackendFixture:
    """One test's tools. `directory` belongs to the test; `workspace` is the code directory of its jobs."""

    harness: BackendHarness
    client: Client
    directory: Path
    workspace: Path
    submitted: list[JobHandle] = field(default_factory=list)

    @property
    def capabilities(self) -> BackendCapabilities:
        return self.harness.capabilities

    def name(self, label: str) -> str:
        """Return a unique name for a job or actor."""
        return f"{label}-{uuid.uuid4().hex[:8]}"

    def flag(self, label: str) -> Flag:
        return Flag(str(self.directory / f"{label}.flag"))

    def tally(self, label: str) -> Tally:
        return Tally(str(self.directory / f"{label}.tally"))

    def environment(
        self,
        env_vars: Mapping[str, str] | None = None,
        pip_packages: Sequence[str] = (),
        extras: Sequence[str] = (),
        workspace: Path | None = None,
    ) -> EnvironmentConfig:
        """Return an environment that needs no build: the workspace has no project file.

        Args:
            env_vars: Variables of the job.
            pip_packages: Requirements to install.
            extras: Optional-dependency groups to install.
            workspace: The workspace; None for the test's own.
        """
        return EnvironmentConfig(
            workspace=str(workspace or self.workspace),
            env_vars=dict(env_vars or {}),
            pip_packages=list(pip_packages),
            extras=list(extras),
        )

    def request(self, entrypoint: Entrypoint, *, name: str | None = None, **fields: Any) -> JobRequest:
        """Return a request for a small job. `fields` are those of `JobRequest`."""
        return JobRequest(
            name or self.name("job"),
            entrypoint,
            **{"resources": SMALL, "environment": self.environment(), **fields},
        )

    def call(self, fn: Callable[..., Any], *args: Any, name: str | None = None, **fields: Any) -> JobHandle:
        """Submit a job that calls `fn(*args)`."""
        return self.submit(self.request(Entrypoint.from_callable(fn, args), name=name, **fields))

    def shell(self, script: str, *args: str, name: str | None = None, **fields: Any) -> JobHandle:
        """Submit a job that runs a shell script, with `args` as $1 and so on."""
        return self.submit(self.request(Entrypoint.from_binary("sh", ["-c", script, "sh", *args]), name=name, **fields))

    def submit(self, request: JobRequest, adopt_existing: bool = True) -> JobHandle:
        """Submit a job that is stopped when the test ends."""
        handle = self.client.submit(request, adopt_existing)
        self.submitted.append(handle)
        return handle

    def stop_jobs(self) -> None:
        """Stop the submitted jobs that still run."""
        for handle in self.submitted:
            handle.terminate()

    def waiter(self, flag: Flag) -> Entrypoint:
        """Return a program that runs until the flag is set or the program is stopped."""
        script = f'while ! [ -e "$1" ]; do sleep 0.02; done; echo released {os.path.basename(flag.path)}'
        return Entrypoint.from_binary("sh", ["-c", script, "sh", flag.path])
