"""The keys of cluster files in iris's form: one table for the reader, its refusals and the JSON schema."""

from dataclasses import replace
from typing import Final

from iris.autoscale.rules import AutoscaleRules, SshSettings
from iris.controller.admission.limits_policy import UNSTATED, LimitsPolicy
from iris.controller.config.controller_config import Durability
from iris.controller.config.kinds import Key, Kind, Table
from iris.controller.logs.store import DEFAULT_LIMIT_BYTES
from iris.controller.storage.disk_space import DEFAULT_RESERVE_BYTES
from iris.domain.job_spec import LIMIT_MODES
from iris.domain.scale_groups import CapacityType
from iris.domain.states import PriorityBand

MANY: Final = 100_000
DAY_S: Final = 86_400

TEXT: Final = Key(Kind.TEXT, "")
FLAG: Final = Key(Kind.FLAG, False)
TEXTS: Final = Key(Kind.TEXTS, ())
NAMES: Final = Key(Kind.NAMES, ())
_PORT: Final = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
ADDRESS: Final = (
    rf"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:({_PORT}))?|[0-9A-Fa-f]*(:[0-9A-Fa-f]*){{2,}}(%[A-Za-z0-9]+)?"
)
"""`host`, `host:port`, `[IPv6]`, `[IPv6]:port` or `IPv6`."""
NUMBER: Final = Key(Kind.NUMBER, 0.0, most=1e12)
SIZE: Final = Key(Kind.SIZE, 0, required=True)


def whole(default: int, least: int, most: int) -> Key:
    """Return a key for a whole number."""
    return Key(Kind.WHOLE, default, least, most)


def duration(default: float, least: float = 1) -> Key:
    """Return a key for a duration; the default and least in seconds."""
    return Key(Kind.DURATION, default, least, 30 * DAY_S)


def choice(default: str, *choices: str) -> Key:
    """Return a key for one of several texts."""
    return Key(Kind.CHOICE, default, choices=choices)


def section(keys: Table) -> Key:
    """Return a key for a section."""
    return Key(Kind.SECTION, keys=keys)


def items(keys: Table) -> Key:
    """Return a key for sections, in a list or by name."""
    return Key(Kind.ITEMS, (), keys=keys)


def needed(allowed: str) -> Key:
    """Return a key for a text that must be given."""
    return Key(Kind.TEXT, "", allowed=allowed, required=True)


COUNT: Final = whole(0, 0, MANY)
PORT: Final = whole(0, 0, 65_535)
_RULES: Final = AutoscaleRules()
_SSH: Final = SshSettings()

CONTROLLER: Final[Table] = {
    "address": TEXT,
    "token_file": TEXT,
    "host": TEXT,
    "port": PORT,
    "insecure": FLAG,
    "state_dir": TEXT,
    "log_limit": Key(Kind.SIZE, DEFAULT_LIMIT_BYTES, 1024 * 1024, allowed="1MB or more"),
    "worker_lost_after": whole(0, 2, DAY_S),
    "dashboard_port": PORT,
    "task_pages_domain": replace(
        TEXT,
        allowed="a domain in lower case whose names lead to this machine, such as 'localhost' or 'tasks.example.org'",
        pattern="([a-z0-9-]{1,63}[.]){0,6}[a-z][a-z0-9-]{0,62}",
    ),
    "partition_patience": whole(300, 0, DAY_S),
    "gcp": section(
        {
            "zone": needed("a zone such as us-central1-a"),
            "machine_type": TEXT,
            "boot_disk_size_gb": COUNT,
            "service_account": TEXT,
            "image": TEXT,
            "port": PORT,
        }
    ),
    "manual": section(
        {"host": replace(needed("the controller's host, such as host1 or 'host1:2222'"), pattern=ADDRESS), "port": PORT}
    ),
}
STORAGE: Final[Table] = {
    "remote_state_dir": TEXT,
    "durability": choice(Durability.LOCAL.value, *(item.value for item in Durability)),
    "disk_reserve": Key(Kind.SIZE, DEFAULT_RESERVE_BYTES),
}
ACCELERATOR: Final[Table] = {
    "type": choice("", "tpu", "gpu"),
    "variant": needed("a type such as v5p-64 or H100"),
    "count": whole(0, 1, MANY),
}
GCP_TEMPLATE: Final[Table] = {
    "project_id": TEXT,
    "machine_type": TEXT,
    "image": TEXT,
    "boot_disk_size_gb": COUNT,
    "disk_type": TEXT,
    "runtime_version": TEXT,
    "network": TEXT,
    "subnetwork": TEXT,
    "service_account": TEXT,
    "reservation": TEXT,
    "tags": NAMES,
    "labels": TEXTS,
}
MANUAL_TEMPLATE: Final[Table] = {
    "hosts": Key(
        Kind.NAMES, (), allowed="a list of addresses, such as [host1, 'host2:2222']", pattern=ADDRESS, required=True
    ),
    "ssh_user": TEXT,
    "ssh_key_file": TEXT,
}
GROUP: Final[Table] = {
    "name": replace(
        needed("up to 63 letters, digits, '.', '_' and '-', a letter or digit first"),
        pattern="[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
    ),
    "accelerator": section(ACCELERATOR),
    "cpu": Key(Kind.NUMBER, 1.0, 0.001, 1e6, "a number of cores above 0", required=True),
    "memory": SIZE,
    "disk": SIZE,
    "hosts_per_slice": whole(0, 1, MANY),
    "min_slices": COUNT,
    "max_slices": COUNT,
    "buffer_slices": COUNT,
    "region": TEXT,
    "zone": TEXT,
    "zones": Key(Kind.NAMES, (), allowed="a list of zones such as [us-east5-b]"),
    "preemptible": FLAG,
    "capacity_type": choice(CapacityType.ON_DEMAND.value, *(item.value for item in CapacityType)),
    "attributes": TEXTS,
    "priority": whole(100, 0, MANY),
    "quota_pool": TEXT,
    "allocation_tier": COUNT,
    "hourly_price": NUMBER,
    "slice_template": section({"gcp": section(GCP_TEMPLATE), "manual": section(MANUAL_TEMPLATE)}),
    "worker": section({"env": TEXTS}),
}
PLATFORM: Final[Table] = {
    "label_prefix": replace(TEXT, pattern="[a-z][a-z0-9-]{0,30}", allowed="up to 31 of a-z, 0-9 and -, a letter first"),
    "gcp": section({"project_id": needed("the id of a project")}),
    "manual": section({}),
}
AUTOSCALER: Final[Table] = {
    "evaluation_interval": duration(_RULES.look_s),
    "scale_down_delay": duration(_RULES.idle_s),
    "boot_timeout": duration(_RULES.boot_deadline_s),
    "requesting_timeout": duration(0),
    "call_timeout": duration(_RULES.call_deadline_s),
    "short_life": duration(_RULES.short_life_s),
    "creates_per_minute": whole(_RULES.creates_per_minute, 1, MANY),
    "creates_per_hour": whole(_RULES.creates_per_hour, 1, MANY),
    "max_hosts": COUNT,
    "notice_after": duration(_RULES.notice_after_s),
}
SSH: Final[Table] = {
    "user": TEXT,
    "key_file": TEXT,
    "port": whole(_SSH.port, 1, 65_535),
    "connect_timeout": duration(_SSH.connect_timeout_s),
    "known_hosts_file": TEXT,
}
DEFAULTS: Final[Table] = {
    "autoscaler": section(AUTOSCALER),
    "ssh": section(SSH),
    "worker": section({"port": PORT, "cache_dir": TEXT, "env": TEXTS}),
    "task_env": TEXTS,
    "task_image": TEXT,
}
BUDGET: Final[Table] = {
    "name": TEXT,
    "max_weight": replace(NUMBER, allowed="a number, 0 (no limit) or more"),
    "max_band": choice(PriorityBand.PRODUCTION.name.lower(), *(band.name.lower() for band in PriorityBand)),
}
_PRICE: Final = replace(NUMBER, allowed="a number, 0 (unknown) or more")
ROOT: Final[Table] = {
    "name": TEXT,
    "platform": section(PLATFORM),
    "controller": section(CONTROLLER),
    "storage": section(STORAGE),
    "defaults": section(DEFAULTS),
    "scale_groups": items(GROUP),
    "user_budgets": items(BUDGET),
    "jobs_per_user": section({"max_pending": COUNT, "max_running": COUNT}),
    "notify": section(
        {
            "url": TEXT,
            "allow": replace(NAMES, allowed='a list of hosts, patterns such as "*.example.com" and networks'),
        }
    ),
    "limits": section(
        {
            "mode": choice(LimitsPolicy().mode, *LIMIT_MODES),
            "force": FLAG,
            "unstated": choice("", *UNSTATED),
        }
    ),
    "prices": items({"name": TEXT, "core_hour": _PRICE, "chip_hour": _PRICE}),
}
