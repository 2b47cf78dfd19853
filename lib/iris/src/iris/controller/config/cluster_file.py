"""The controller's part of the cluster's config file. Every refusal names the file, key, value and allowed values.

controller: {port: 7077, state_dir: ~/iris, log_limit: 1GB}        # and, for clients: address, token_file
storage: {remote_state_dir: gs://bucket/iris, durability: remote, disk_reserve: 64MB}
scale_groups:
  - {name: v5p-64-b, accelerator: {type: tpu, variant: v5p-64, count: 4}, cpu: 208, memory: 448GB, disk: 100GB,
     hosts_per_slice: 8, region: us-east5, zone: us-east5-b, preemptible: true, min_slices: 0, max_slices: 4}
user_budgets: {ann: {max_weight: 500, max_band: interactive}}
jobs_per_user: {max_pending: 1000, max_running: 50}
limits: {mode: enforced, force: true, unstated: warn}
prices: {v5p-64-b: {chip_hour: 4.2}, H100: {chip_hour: 2.5}, cpu: {core_hour: 0.04}}   # by scale group or device
notify: {url: https://hooks.example.com/iris, allow: ["*.example.com", 10.0.0.0/8]}

Older files are first translated into this form (`older_file`).
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from iris.autoscale.rules import AutoscaleRules, Platform
from iris.controller.admission.limits_policy import UNSTATED, LimitsPolicy
from iris.controller.config.controller_config import Durability
from iris.controller.config.older_file import translate
from iris.controller.config.sections import (
    ACCELERATOR_KEYS,
    BUDGET_KEYS,
    CONTROLLER_KEYS,
    GROUP_KEYS,
    JOBS_PER_USER_KEYS,
    LIMITS_KEYS,
    NOTIFY_KEYS,
    PRICE_KEYS,
    SECTIONS,
    STORAGE_KEYS,
    Document,
    Section,
    read_document,
)
from iris.controller.logs.store import DEFAULT_LIMIT_BYTES
from iris.controller.storage.disk_space import DEFAULT_RESERVE_BYTES
from iris.domain.entities import JobsPerUser, UserBudget
from iris.domain.ids import validate_name
from iris.domain.job_spec import LIMIT_MODES
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from iris.domain.states import PriorityBand
from iris.domain.usage import Price
from iris.domain.webhooks import parse_webhook
from rigging.errors import InvalidRequest
from rigging.topology import get_tpu_topology

_MANY: Final = 100_000
_LEAST_LOG_LIMIT: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The controller's part of a cluster's config file. Empty or 0 means that the file has no value.

    Args:
        path: The file's path; None if there is no file.
    """

    path: Path | None = None
    address: str = ""
    host: str = ""
    port: int = 0
    dashboard_port: int = 0
    insecure: bool = False
    worker_timeout_s: int = 0
    partition_patience_s: int = 300
    state_dir: str = ""
    remote_state_dir: str = ""
    durability: Durability = Durability.LOCAL
    scale_groups: tuple[ScaleGroup, ...] = ()
    limits: LimitsPolicy = field(default_factory=LimitsPolicy)
    user_budgets: tuple[UserBudget, ...] = ()
    jobs_per_user: JobsPerUser = field(default_factory=JobsPerUser)
    prices: tuple[tuple[str, Price], ...] = ()
    log_limit_bytes: int = DEFAULT_LIMIT_BYTES
    disk_reserve_bytes: int = DEFAULT_RESERVE_BYTES
    notify_url: str = ""
    notify_allow: tuple[str, ...] = ()
    name: str = ""
    platform: Platform = field(default_factory=Platform)
    autoscale: AutoscaleRules = field(default_factory=AutoscaleRules)


def read_cluster_config(path: Path) -> ClusterConfig:
    """Read and validate a cluster config. Raise InvalidRequest."""
    return _parse(translate(read_document(path)).document)


def parse_cluster_config(content: object, path: Path) -> ClusterConfig:
    """Validate the content of a config file. Raise InvalidRequest."""
    return _parse(translate(Document(path, content)).document)


def _parse(file: Document) -> ClusterConfig:
    root = Section(file.content, "", file, SECTIONS)
    controller = root.section("controller", CONTROLLER_KEYS)
    storage = root.section("storage", STORAGE_KEYS)
    durability = storage.choice("durability", [item.value for item in Durability], Durability.LOCAL.value)
    remote = storage.text("remote_state_dir")
    if durability == Durability.REMOTE.value and not remote:
        raise storage.wrong("durability", durability, "'local', as there is no storage.remote_state_dir")
    groups = tuple(_scale_group(item) for item in root.sections("scale_groups", GROUP_KEYS))
    names = [group.name for group in groups]
    for name in names:
        if names.count(name) > 1:
            raise root.wrong("scale_groups", name, "a name that no other scale group has")
    notify = root.section("notify", NOTIFY_KEYS)
    return ClusterConfig(
        path=file.path,
        name=root.text("name"),
        notify_url=_notify_url(notify),
        notify_allow=_notify_allow(notify),
        address=controller.text("address"),
        host=controller.text("host"),
        insecure=controller.flag("insecure"),
        worker_timeout_s=controller.whole("worker_lost_after", 0, 2, 86_400),
        partition_patience_s=controller.whole("partition_patience", 300, 0, 86_400),
        port=controller.whole("port", 0, 0, 65_535),
        dashboard_port=controller.whole("dashboard_port", 0, 0, 65_535),
        state_dir=os.path.expanduser(controller.text("state_dir")),
        remote_state_dir=remote,
        durability=Durability(durability),
        scale_groups=groups,
        limits=_limits(root.section("limits", LIMITS_KEYS)),
        user_budgets=tuple(_budget(item) for item in root.sections("user_budgets", BUDGET_KEYS)),
        jobs_per_user=_jobs_per_user(root.section("jobs_per_user", JOBS_PER_USER_KEYS)),
        prices=tuple(_price(item) for item in root.sections("prices", PRICE_KEYS)),
        log_limit_bytes=_log_limit(controller),
        disk_reserve_bytes=storage.size("disk_reserve") if storage.has("disk_reserve") else DEFAULT_RESERVE_BYTES,
    )


def _limits(section: Section) -> LimitsPolicy:
    unstated = section.choice("unstated", [*UNSTATED], "") if section.has("unstated") else ""
    return LimitsPolicy(section.choice("mode", [*LIMIT_MODES], LimitsPolicy().mode), section.flag("force"), unstated)


def _jobs_per_user(section: Section) -> JobsPerUser:
    return JobsPerUser(*(section.whole(key, 0, 0, _MANY) for key in JOBS_PER_USER_KEYS))


def _price(section: Section) -> tuple[str, Price]:
    return section.text("name"), Price(section.number("core_hour", "unknown"), section.number("chip_hour", "unknown"))


def _notify_url(section: Section) -> str:
    url = section.text("url")
    if url:
        try:
            parse_webhook(url)
        except InvalidRequest as error:
            # Not the address itself: it may hold a key.
            raise InvalidRequest(f"{section.where('url')}: {error}") from None
    return url


def _notify_allow(section: Section) -> tuple[str, ...]:
    found = section.content.get("allow")
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(entry, str) and entry.strip() for entry in found):
        raise section.wrong("allow", found, 'a list of hosts, patterns such as "*.example.com" and networks')
    return tuple(entry.strip() for entry in found)


def _log_limit(controller: Section) -> int:
    if not controller.has("log_limit"):
        return DEFAULT_LIMIT_BYTES
    limit = controller.size("log_limit")
    if limit < _LEAST_LOG_LIMIT:
        raise controller.wrong("log_limit", limit, "1MB or more")
    return limit


def _scale_group(section: Section) -> ScaleGroup:
    name = section.text("name")
    if not name:
        raise section.wrong("name", name, "the name of the scale group")
    device = _device(section.section("accelerator", ACCELERATOR_KEYS)) if section.has("accelerator") else None
    hosts = 1
    if device is not None and device.kind == "tpu":
        hosts = get_tpu_topology(device.variant).vm_count
    given = section.whole("hosts_per_slice", hosts, 1, _MANY)
    if device is not None and device.kind == "tpu" and given != hosts:
        raise section.wrong("hosts_per_slice", given, f"{hosts}, as a slice of {device.variant} has; or leave it out")
    least = section.whole("min_slices", 0, 0, _MANY)
    most = section.whole("max_slices", max(least, 1), 0, _MANY)
    if most < least:
        raise section.wrong("max_slices", most, f"{least} (min_slices) or more")
    return ScaleGroup(
        name=name,
        host=Resources(section.cores("cpu"), section.size("memory"), section.size("disk"), device),
        hosts_per_slice=given,
        min_slices=least,
        max_slices=most,
        region=section.text("region") or section.text("zone").rpartition("-")[0],
        zone=section.text("zone"),
        preemptible=section.flag("preemptible"),
        attributes=section.texts("attributes"),
    )


def _budget(section: Section) -> UserBudget:
    try:
        user = validate_name(section.text("name"))
    except InvalidRequest as error:
        raise InvalidRequest(f"{section.where('name')}: {error}") from None
    bands = [band.name.lower() for band in PriorityBand]
    band = section.choice("max_band", bands, PriorityBand.PRODUCTION.name.lower())
    return UserBudget(user, section.number("max_weight"), PriorityBand[band.upper()])


def _device(section: Section) -> Device:
    kind = section.choice("type", ["tpu", "gpu"], "")
    variant = section.text("variant")
    if not variant:
        raise section.wrong("variant", variant, "a type such as v5p-64 or H100")
    if kind == "tpu":
        try:
            chips = get_tpu_topology(variant).chips_per_vm
        except InvalidRequest as error:
            raise InvalidRequest(f"{section.where('variant')}: {error}") from None
        return Device("tpu", variant, section.whole("count", chips, 1, chips))
    return Device("gpu", variant, section.whole("count", 1, 1, _MANY))
