"""Handwritten runs and outputs in the executor's format, for tests of code that reads them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Events = list[dict[str, Any]]
STARTED = 1_700_000_000.0


@dataclass
class RecordedStorage:
    """A storage root on disk."""

    root: Path

    def step(self, name: str, *, status: str | None = "SUCCESS", **info: Any) -> dict[str, Any]:
        """Write the output of a step at `name` (including the hash) below the root."""
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        content = {
            "name": name.rpartition("-")[0],
            "fn_name": "module.function",
            "config": {"n": 1},
            "override_output_path": None,
            "version": {"name": name.rpartition("-")[0], "config": {"n": 1}, "dependencies": []},
            "dependencies": [],
            "output_path": str(path),
            "unversioned": {},
            "source": {},
            **info,
        }
        (path / ".executor_info").write_text(json.dumps(content))
        if status is not None:
            (path / ".executor_status").write_text(status)
        return content

    def run(
        self, stem: str, steps: list[dict[str, Any]], events: Events | None = None, *, pid: int = 4, hour: int = 1
    ) -> str:
        """Record a run: its info file, and its event log unless there are no events."""
        directory = self.root / "experiments"
        directory.mkdir(parents=True, exist_ok=True)
        head = {
            "worker_id": f"elsewhere-{pid}-1", "git_commit": "c0ffee", "caller_path": "/work/train.py",
            "created_date": "2023-11-14T22:13:20+00:00", "user": "ada", "prefix": str(self.root),
            "description": "Train.",
        }  # fmt: skip
        (directory / f"{stem}.json").write_text(json.dumps({**head, "steps": steps}, indent=2))
        if events is None:
            return stem
        name = f"{stem}-20231114T{hour:02}0000.000000Z-{pid}"
        (directory / f"{name}.events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        return name


def started(steps: int = 1, **more: Any) -> dict[str, Any]:
    return {"event": "run_started", "time": STARTED, "steps": steps, "description": "Train.", **more}


def step_ended(step: dict[str, Any], status: str = "succeeded", **more: Any) -> dict[str, Any]:
    return {
        "event": "step_ended", "time": STARTED + 1, "name": step["name"], "path": step["output_path"],
        "status": status, "seconds": 61.5, "queued_seconds": 0.0, "error": None, "log": None, "differences": [],
        **more,
    }  # fmt: skip


def ended(error: str | None = None, **more: Any) -> dict[str, Any]:
    return {"event": "run_ended", "time": STARTED + 2, "seconds": 62.0, "error": error, **more}


@dataclass
class Done:
    """The result of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)
