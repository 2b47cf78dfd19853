"""The request that submits a job. --dry-run shows the same request."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rigging.project.code_state import CODE_VARIABLE
from rigging.redaction import REDACTED, is_secret_name, redact_string

SETUP_SECONDS: Final = 1800
"""Timeout for a node to install a job's packages, in seconds."""

ENTRYPOINT_METADATA: Final = "marin_entrypoint"
"""Key of a job's metadata for the resources of its entrypoint, as JSON."""


@dataclass(frozen=True, slots=True)
class EntrypointResources:
    """Resources reserved for the job's own process, separate from its tasks; `memory` in bytes. None means not
    given.
    """

    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to submit.

    Args:
        submission_id: Its id, chosen here so that a job can be stopped after an interrupted submission.
        command: Its command as arguments.
        env_vars: Variables of the job and its tasks.
        withheld: Names of variables whose values are never shown.
        pip: Requirements to install.
        package_uri: Its packed working directory.
        installer: "pip" or "uv", Ray's ways to install requirements.
    """

    submission_id: str
    command: tuple[str, ...]
    env_vars: Mapping[str, str] = field(default_factory=dict)
    pip: tuple[str, ...] = ()
    package_uri: str = ""
    resources: EntrypointResources = EntrypointResources()
    withheld: frozenset[str] = frozenset()
    installer: str = "pip"

    def runtime_env(self) -> dict[str, Any]:
        """Return the job's runtime environment in Ray's format."""
        found: dict[str, Any] = {}
        if self.package_uri:
            found["working_dir"] = self.package_uri
        if self.env_vars:
            found["env_vars"] = dict(self.env_vars)
        if self.pip:
            check = {"pip_check": False} if self.installer == "pip" else {}
            found[self.installer] = {"packages": list(self.pip), **check}
            found["config"] = {"setup_timeout_seconds": SETUP_SECONDS}
        return found

    def body(self) -> dict[str, Any]:
        """Return the request's body."""
        entry = {
            "entrypoint_num_cpus": self.resources.num_cpus,
            "entrypoint_num_gpus": self.resources.num_gpus,
            "entrypoint_memory": self.resources.memory,
            "entrypoint_resources": dict(self.resources.resources) or None,
        }
        given = {name: value for name, value in entry.items() if value is not None}
        return {
            "entrypoint": shlex.join(self.command),
            "submission_id": self.submission_id,
            "runtime_env": self.runtime_env(),
            # Ray does not list these, and a restart of the cluster must submit the job with them again.
            "metadata": {ENTRYPOINT_METADATA: json.dumps(given)} if given else {},
            **given,
        }

    def shown_body(self) -> dict[str, Any]:
        """Return the request's body, redacted for people."""
        body = self.body()
        body["entrypoint"] = redact_string(body["entrypoint"])
        body["runtime_env"] = self._shown_env()
        return body

    def ray_command(self, address: str, working_dir: str, *, wait: bool, named: bool = False) -> str:
        """Return an equivalent `ray job submit` line for people, without secrets.

        Args:
            address: The URL of the cluster's dashboard.
            working_dir: The folder to send.
            wait: Whether the command waits for the job's end.
            named: Whether the job gets the same id. The cluster refuses an id that was used before.
        """
        words = ["ray", "job", "submit", "--address", redact_string(address), "--working-dir", working_dir]
        runtime_env = self._shown_env()
        runtime_env.pop("working_dir", None)
        if runtime_env.get("env_vars", {}).pop(CODE_VARIABLE, None) and not runtime_env["env_vars"]:
            del runtime_env["env_vars"]
        if runtime_env:
            words += ["--runtime-env-json", json.dumps(runtime_env)]
        resources = self.resources
        for option, value in (("num-cpus", resources.num_cpus), ("num-gpus", resources.num_gpus)):
            words += [f"--entrypoint-{option}", f"{value:g}"] if value is not None else []
        words += ["--entrypoint-memory", str(resources.memory)] if resources.memory is not None else []
        words += ["--entrypoint-resources", json.dumps(dict(resources.resources))] if resources.resources else []
        words += ["--submission-id", self.submission_id] if named else []
        words += [] if wait else ["--no-wait"]
        command = " ".join(shlex.quote(word) for word in words)
        return f"{command} -- {redact_string(shlex.join(self.command))}"

    def _shown_env(self) -> dict[str, Any]:
        shown = self.runtime_env()
        if "env_vars" in shown:
            shown["env_vars"] = {
                name: REDACTED if name in self.withheld or is_secret_name(name) else redact_string(value)
                for name, value in shown["env_vars"].items()
            }
        if self.installer in shown:
            packages = [redact_string(text) for text in self.pip]
            shown[self.installer] = {**shown[self.installer], "packages": packages}
        return shown
