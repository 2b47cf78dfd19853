"""The controller's part of the cluster's config file (docs/reference/iris-clusters.md), whose keys are in `keys`.

Older files are first translated into this form (`older_file`). All problems of a file are refused at once, each with
file, line, key, value and allowed values.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from iris.autoscale.rules import AutoscaleRules, Platform
from iris.controller.admission.limits_policy import LimitsPolicy
from iris.controller.config.controller_config import Durability
from iris.controller.config.document import Document, read_document
from iris.controller.config.groups import price_of, scale_groups
from iris.controller.config.keys import ROOT
from iris.controller.config.older_file import Translation, translate
from iris.controller.config.platform import autoscale_rules, platform_of
from iris.controller.config.sections import Section
from iris.controller.logs.store import DEFAULT_LIMIT_BYTES
from iris.controller.storage.disk_space import DEFAULT_RESERVE_BYTES
from iris.domain.entities import JobsPerUser, UserBudget
from iris.domain.ids import validate_name
from iris.domain.scale_groups import ScaleGroup
from iris.domain.states import PriorityBand
from iris.domain.usage import Price
from iris.domain.webhooks import parse_webhook
from rigging.errors import InvalidRequest


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
    task_pages_domain: str = ""
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
    """Read and validate a cluster config. Raise InvalidRequest with all of its problems."""
    return read_translated(path)[0]


def read_translated(path: Path) -> tuple[ClusterConfig, Translation]:
    """Read and validate a cluster config; return it, and the file in iris's form. Raise InvalidRequest."""
    found = translate(read_document(path))
    return _parse(found.document), found


def parse_cluster_config(content: object, path: Path) -> ClusterConfig:
    """Validate the content of a config file. Raise InvalidRequest."""
    return _parse(translate(Document(path, content)).document)


def _parse(file: Document) -> ClusterConfig:
    root = Section(file.content, "", file, ROOT)
    controller, storage, notify = root.section("controller"), root.section("storage"), root.section("notify")
    platform = platform_of(root)
    durability, remote = storage.text("durability"), storage.text("remote_state_dir")
    if durability == Durability.REMOTE.value and not remote:
        storage.refuse("durability", "'local', as there is no storage.remote_state_dir")
    limits = root.section("limits")
    jobs = root.section("jobs_per_user")
    config = ClusterConfig(
        path=file.path,
        name=root.text("name"),
        notify_url=_notify_url(notify),
        notify_allow=notify.names("allow"),
        address=controller.text("address"),
        host=controller.text("host"),
        insecure=controller.flag("insecure"),
        worker_timeout_s=controller.whole("worker_lost_after"),
        partition_patience_s=controller.whole("partition_patience"),
        port=controller.whole("port") or (platform.controller.port if platform.controller else 0),
        dashboard_port=controller.whole("dashboard_port"),
        task_pages_domain=controller.text("task_pages_domain"),
        state_dir=os.path.expanduser(controller.text("state_dir")),
        remote_state_dir=remote,
        durability=Durability(durability),
        scale_groups=scale_groups(root),
        limits=LimitsPolicy(limits.text("mode"), limits.flag("force"), limits.text("unstated")),
        user_budgets=tuple(map(_budget, root.sections("user_budgets"))),
        jobs_per_user=JobsPerUser(jobs.whole("max_pending"), jobs.whole("max_running")),
        prices=tuple(map(_price, root.sections("prices"))),
        log_limit_bytes=controller.whole("log_limit"),
        disk_reserve_bytes=storage.whole("disk_reserve"),
        platform=platform,
        autoscale=autoscale_rules(root),
    )
    file.check()
    given = {name for name, _ in config.prices}
    further = [group for group in config.scale_groups if group.hourly_price and group.name not in given]
    return replace(config, prices=config.prices + tuple((group.name, price_of(group)) for group in further))


def _price(section: Section) -> tuple[str, Price]:
    return section.text("name"), Price(section.number("core_hour"), section.number("chip_hour"))


def _notify_url(section: Section) -> str:
    url = section.text("url")
    if url:
        try:
            parse_webhook(url)
        except InvalidRequest as error:
            # Not the address itself: it may hold a key.
            section.refuse_with("url", error)
    return url


def _budget(section: Section) -> UserBudget:
    name = section.text("name")
    try:
        validate_name(name)
    except InvalidRequest as error:
        section.refuse_with("name", error)
    return UserBudget(name, section.number("max_weight"), PriorityBand[section.text("max_band").upper()])
