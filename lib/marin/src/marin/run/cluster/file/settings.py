"""The settings of a project's Ray clusters, from infra/clusters.toml."""

import dataclasses
import difflib
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from rigging.errors import InvalidRequest
from rigging.filesystem.region import REGION_TO_DATA_BUCKET, data_bucket
from rigging.text.quantities import check_count
from rigging.topology import get_tpu_topology

SETTINGS_FILE: Final = "clusters.toml"
_ZONE: Final = re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]")
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,29}[a-z0-9])?")
# They stand in YAML, and in lines that shells of the VMs run.
_TEXTS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "project": (re.compile(r"[a-z0-9][-a-z0-9.:]*[a-z0-9]|[a-z0-9]"), "my-project"),
    "image": (re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/:@]*"), "rayproject/ray:2.60.0-py311-cpu"),
    "head_machine": (re.compile(r"[a-z0-9][-a-z0-9]*"), "n2-standard-8"),
    "head_image": (re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/:]*"), "projects/PROJECT/global/images/family/FAMILY"),
    "ssh_user": (re.compile(r"[A-Za-z_][-A-Za-z0-9_.]{0,31}"), "ray"),
    "prefix": (re.compile(r"|gs://[a-z0-9][-a-z0-9._]*(/[-A-Za-z0-9._=/]*)?"), "gs://my-bucket/folder"),
}
_LEAST: Final = {"head_disk_gb": 10, "visible_cpus": 1, "heartbeat_timeout_seconds": 10, "idle_timeout_minutes": 0}
_T = TypeVar("_T")


class Capacity(StrEnum):
    """The source of TPUs: preemptible, a reservation, or on demand."""

    PREEMPTIBLE = "preemptible"
    RESERVED = "reserved"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """A worker type.

    Args:
        tpu: The type of its slice, e.g. "v4-8".
        min: Minimum number of slices.
        max: Maximum number of slices.
    """

    tpu: str
    max: int
    min: int = 0
    capacity: Capacity = Capacity.PREEMPTIBLE

    def __post_init__(self) -> None:
        get_tpu_topology(self.tpu)
        check_count(self.max, f"{self.tpu}: max")
        check_count(self.min, f"{self.tpu}: min")
        if self.min > self.max:
            raise InvalidRequest(f"{self.tpu}: min {self.min} is above max {self.max}")
        if self.capacity not in tuple(Capacity):
            raise InvalidRequest(f"{self.tpu}: capacity {self.capacity!r} is not one of {', '.join(Capacity)}")

    @property
    def name(self) -> str:
        """Its name in the cluster file, which labels running nodes."""
        kind = "" if self.capacity == Capacity.PREEMPTIBLE else f"_{self.capacity.replace('-', '_')}"
        return f"tpu_{self.tpu.replace('-', '_')}{kind}"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """A cluster.

    Args:
        name: Its readable name. The name on Google Cloud and of the file is `marin-NAME`.
        zone: The zone of all its nodes, e.g. "us-central2-b".
        image: Container image, with the same Ray as the cluster's users.
        head_image: Boot image of the head's VM.
        visible_cpus: Maximum number of CPUs of a TPU VM that Ray gives to tasks.
        idle_timeout_minutes: Nodes above the minimum are removed after this time without work.
        heartbeat_timeout_seconds: The autoscaler restarts Ray on a node without a heartbeat for this time.
        token_auth: Whether the cluster requires a token.
        keep_job_history: Whether the head's state, including jobs, is on disk and survives a restart of Ray.
        prefix: The jobs' MARIN_PREFIX, in a bucket that all nodes can read; empty for the region's bucket.
    """

    name: str
    project: str
    zone: str
    image: str
    workers: tuple[WorkerSettings, ...]
    head_machine: str = "n2-standard-8"
    head_disk_gb: int = 200
    head_image: str = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
    ssh_user: str = "ray"
    visible_cpus: int = 120
    idle_timeout_minutes: int = 10
    heartbeat_timeout_seconds: int = 300
    upscaling_speed: float = 10.0
    token_auth: bool = True
    keep_job_history: bool = False
    prefix: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidRequest(f"cluster {self.name!r}: a name has small letters, digits and -, 31 at most")
        if not _ZONE.fullmatch(self.zone):
            raise InvalidRequest(f"cluster {self.name}: zone {self.zone!r} is not a zone; write e.g. 'us-central2-b'")
        if not self.prefix and self.region not in REGION_TO_DATA_BUCKET:
            known = ", ".join(REGION_TO_DATA_BUCKET)
            raise InvalidRequest(
                f"cluster {self.name}: no bucket is known for region {self.region} (known: {known}); give a prefix"
            )
        if self.prefix and not self.prefix.startswith("gs://"):
            raise InvalidRequest(f"cluster {self.name}: prefix {self.prefix!r} is in no bucket; write gs://BUCKET")
        if not self.workers:
            raise InvalidRequest(f"cluster {self.name}: it has no workers")
        names = [worker.name for worker in self.workers]
        if len(set(names)) < len(names):
            raise InvalidRequest(f"cluster {self.name}: two workers have the same TPU type and capacity: {names}")
        for field, (allowed, example) in _TEXTS.items():
            if not allowed.fullmatch(getattr(self, field)):
                raise InvalidRequest(
                    f"cluster {self.name}: {field} {getattr(self, field)!r} cannot be one; write e.g. {example!r}"
                )
        for field, least in _LEAST.items():
            check_count(getattr(self, field), f"cluster {self.name}: {field}", least)
        if not 0 <= self.upscaling_speed < math.inf:
            raise InvalidRequest(
                f"cluster {self.name}: upscaling_speed must be a number from 0, not {self.upscaling_speed}"
            )

    @property
    def region(self) -> str:
        """The region of its zone."""
        return self.zone.rpartition("-")[0]

    @property
    def marin_prefix(self) -> str:
        """The jobs' MARIN_PREFIX."""
        return self.prefix or f"gs://{data_bucket(self.region)}"

    @property
    def token_url(self) -> str:
        """The location of its token."""
        return f"{self.marin_prefix.rstrip('/')}/ray/{self.cluster_name}/auth_token"

    @property
    def cluster_name(self) -> str:
        """Its name on Google Cloud."""
        return f"marin-{self.name}"


@dataclass(frozen=True, slots=True)
class Settings:
    """All clusters by name, and the default one."""

    default: str
    clusters: Mapping[str, ClusterSettings]


def read_settings(path: Path) -> Settings:
    """Read the clusters of a project. Raise InvalidRequest that names the cluster, the key and the allowed values."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from None
    try:
        return parse_settings(found)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}") from None


def parse_settings(found: Mapping[str, Any]) -> Settings:
    """Return the settings in parsed TOML. Raise InvalidRequest like `read_settings`."""
    check_keys(found, ("default", "common", "clusters"), "the file")
    common = _table(found.get("common", {}), "common")
    clusters = {}
    for name, given in _table(found.get("clusters", {}), "clusters").items():
        table = {**common, **_table(given, f"cluster {name}")}
        workers = table.pop("workers", ())
        if not isinstance(workers, Sequence) or isinstance(workers, str):
            raise InvalidRequest(f"cluster {name}: workers {workers!r} is not a list")
        made = tuple(_build(WorkerSettings, _table(each, "a worker"), f"cluster {name}: a worker") for each in workers)
        clusters[name] = _build(ClusterSettings, {**table, "name": name, "workers": made}, f"cluster {name}")
    default = found.get("default")
    if default not in clusters:
        raise InvalidRequest(f"default {default!r} is not one of the clusters {', '.join(clusters)}")
    return Settings(default, clusters)


def check_keys(found: Mapping[str, Any], known: Sequence[str], owner: str) -> None:
    """Check that all keys are known.

    Args:
        found: The keys to check.
        known: The allowed keys.
        owner: The owner of the keys, for messages.

    Raises:
        InvalidRequest: A key is unknown. The message suggests the nearest known one.
    """
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise InvalidRequest(f"{owner} has an unknown key {key!r}{hint}")


def _table(found: object, owner: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InvalidRequest(f"{owner}: {found!r} is not a table")
    return found


def _build(kind: type[_T], given: Mapping[str, Any], owner: str) -> _T:
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    check_keys(given, list(fields), owner)
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in given]
    if missing:
        raise InvalidRequest(f"{owner} lacks {', '.join(missing)}")
    for name, value in given.items():
        expected = fields[name].type
        if expected in (str, int, bool, float) and not _fits(value, expected):
            raise InvalidRequest(f"{owner}: {name} must be {_WORDS[expected]}, not {value!r}")
    return kind(**given)


_WORDS: Final[Mapping[Any, str]] = {str: "a text", int: "a whole number", bool: "true or false", float: "a number"}


def _fits(value: object, expected: Any) -> bool:
    if isinstance(value, bool):
        return expected is bool
    return isinstance(value, int | float) if expected is float else isinstance(value, expected)
