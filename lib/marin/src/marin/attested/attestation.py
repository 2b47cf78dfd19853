"""The attestation of a run, as a JSON document: the provenance of each output, and the digests of its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from rigging.errors import InvalidRequest

FORMAT: Final = 1

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class AttestedFile:
    """A file of an output.

    Attributes:
        name: Its path, relative to the output path.
        bytes: Its size.
        sha256: The digest of its content, 64 hex digits.
    """

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class AttestedStep:
    """An output and its provenance.

    Attributes:
        path: Its path relative to the run's prefix; absolute if it is outside.
        name: The step's name.
        made_by: Its `.executor_info`: function, config, version, dependencies, unversioned values, code.
        run: The run that made the output; None if no longer recorded.
        files: Its files, by name, without marin's own records.
        changed: The names of those that changed after the step ended.
    """

    path: str
    name: str
    made_by: Mapping[str, Any]
    run: str | None
    files: tuple[AttestedFile, ...]
    changed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the step in the document's format."""
        return {**asdict(self), "files": [asdict(file) for file in self.files]}


@dataclass(frozen=True, slots=True)
class Attestation:
    """The attestation of a run.

    Attributes:
        run: Its name.
        runs: The records (script, commit, user and so on) of this run, and of the runs that made outputs reused by it.
        prefix: The storage root of its outputs.
        steps: Its steps, each after its dependencies.
    """

    run: str
    runs: Mapping[str, Mapping[str, Any]]
    prefix: str
    steps: tuple[AttestedStep, ...]

    @property
    def command(self) -> str | None:
        """The script and its arguments, as one line; None if not recorded."""
        return self._recorded("command")

    @property
    def commit(self) -> str | None:
        """The commit that the run started from; None if not recorded."""
        return self._recorded("git_commit")

    @property
    def code(self) -> Mapping[str, Any]:
        """The code of the run (`marin.execution.record.code_record`); {} if not recorded."""
        code = self.runs.get(self.run, {}).get("code")
        return code if isinstance(code, dict) else {}

    def _recorded(self, key: str) -> str | None:
        value = self.runs.get(self.run, {}).get(key)
        return value if isinstance(value, str) else None

    def to_json(self) -> dict[str, Any]:
        """Return the document that `parse` reads."""
        steps = [step.to_json() for step in self.steps]
        head = {"marin_attestation": FORMAT, "run": self.run, "prefix": self.prefix}
        return {**head, "runs": {name: dict(run) for name, run in self.runs.items()}, "steps": steps}


def parse(document: Any, source: str) -> Attestation:
    """Return the attestation in a JSON document.

    Args:
        document: The parsed JSON.
        source: The file, for messages.

    Raises:
        InvalidRequest: A field is missing or wrong; the message names it.
    """
    root = _checked(document, dict, "the document", source)
    version = _field(root, "marin_attestation", int, "", source)
    if version != FORMAT:
        raise InvalidRequest(f"{source}: marin_attestation is {version}; this release reads {FORMAT}")
    steps = tuple(
        _step(item, f"steps[{index}]", source) for index, item in enumerate(_field(root, "steps", list, "", source))
    )
    if len({step.path for step in steps}) < len(steps):
        raise InvalidRequest(f"{source}: steps: two of them have the same path")
    runs = _field(root, "runs", dict, "", source)
    for name, run in runs.items():
        _checked(run, dict, f"runs.{name}", source)
    return Attestation(_field(root, "run", str, "", source), runs, _field(root, "prefix", str, "", source), steps)


def key_of(path: str, prefix: str) -> str:
    """Return an output path as `AttestedStep.path`: relative to the prefix, or unchanged."""
    return path.removeprefix(f"{prefix.rstrip('/')}/").rstrip("/")


def path_of(key: str, prefix: str) -> str:
    """Return the output path of a key under a prefix, the inverse of `key_of`."""
    return key if key.startswith("/") or "://" in key else f"{prefix.rstrip('/')}/{key}"


def _step(value: Any, where: str, source: str) -> AttestedStep:
    step = _checked(value, dict, where, source)
    files = []
    for index, item in enumerate(_field(step, "files", list, where, source)):
        place = f"{where}.files[{index}]"
        file = _checked(item, dict, place, source)
        digest = _field(file, "sha256", str, place, source)
        if not _DIGEST.fullmatch(digest):
            raise InvalidRequest(f"{source}: {place}.sha256 is {digest!r}, not 64 hex digits in lower case")
        name = _relative(_field(file, "name", str, place, source), f"{place}.name", source)
        files.append(AttestedFile(name, _field(file, "bytes", int, place, source), digest))
    path = _field(step, "path", str, where, source)
    if not (path.startswith("/") or "://" in path):
        _relative(path, f"{where}.path", source)
    made_by = _field(step, "made_by", dict, where, source)
    run = None if step.get("run") is None else _field(step, "run", str, where, source)
    return AttestedStep(path, _field(step, "name", str, where, source), made_by, run, tuple(files))


def _relative(path: str, where: str, source: str) -> str:
    """Refuse a path that could lead out of its directory."""
    if path.startswith("/") or not path or {"", ".", ".."} & set(path.split("/")):
        raise InvalidRequest(f"{source}: {where} is {path!r}, not a plain relative path")
    return path


def _field(parent: Mapping[str, Any], name: str, kind: type[_Kind], where: str, source: str) -> _Kind:
    place = f"{where}.{name}" if where else name
    if name not in parent:
        raise InvalidRequest(f"{source}: {place} is missing; is it a file that `marin attest` wrote?")
    return _checked(parent[name], kind, place, source)


def _checked(value: Any, kind: type[_Kind], where: str, source: str) -> _Kind:
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
        raise InvalidRequest(f"{source}: {where} is {str(value)[:60]!r}, not {kinds[kind]}")
    return value
