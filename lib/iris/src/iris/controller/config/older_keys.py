"""The further keys of the predecessor's cluster files, and why some have no effect here."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from iris.controller.config.keys import COUNT, FLAG, NAMES, ROOT, TEXT, TEXTS, items, section
from iris.controller.config.kinds import Key, Kind, Table

_ADDRESSES: Final = "jobs and clients find what they need through the controller"
_IMAGE: Final = "controllers and workers run in no container; tasks get defaults.task_image"
_PROVIDER: Final = "the platform and each group's slice_template say how machines are made"
_NOT_HERE: Final = "machines are made at Google, or exist and are reached by ssh"
_SSH: Final = "ssh uses defaults.ssh.user and key_file"
_BUNDLES: Final = "code is kept in the controller's state directory (controller.state_dir)"
_SILENCE: Final = "a worker is lost after a minute of silence (docs/durability.md)"
_TASKS: Final = "all tasks of the cluster get defaults.task_env"
_DEFAULT: Final = "Google's default is used"
_TPU_NODES: Final = "TPU types are TPU nodes, others machines of Compute Engine"


def no_effect(why: str) -> Key:
    """Return a key without an effect, with the reason."""
    return Key(Kind.ANY, why=why)


def _none(why: str, *keys: str) -> dict[str, Key]:
    return dict.fromkeys(keys, no_effect(why))


_GCP: Final[Table] = {
    "zone": TEXT,
    "boot_image": TEXT,
    "disk_size_gb": COUNT,
    **_none(_TPU_NODES, "mode", "topology", "tpu_topology"),
}
_TEMPLATE: Final[Table] = {
    "gcp": section(_GCP),
    "num_vms": COUNT,
    "accelerator_type": TEXT,
    "accelerator_variant": TEXT,
    "capacity_type": TEXT,
    "preemptible": FLAG,
    "disk_size_gb": COUNT,
    "labels": TEXTS,
    **_none(_NOT_HERE, "coreweave", "local"),
    **_none("names begin with platform.label_prefix", "name_prefix"),
    **_none("the accelerator says it", "gpu_count"),
}
_RESOURCES: Final[Table] = {
    **dict.fromkeys(("cpu", "ram", "memory", "disk"), Key(Kind.ANY)),
    **dict.fromkeys(("device_type", "device_variant", "capacity_type"), TEXT),
    **dict.fromkeys(("device_count", "tpu_count", "gpu_count"), COUNT),
    "preemptible": FLAG,
}
_GROUP_WORKER: Final[Table] = {
    "attributes": Key(Kind.ANY),
    **_none(_TASKS, "task_env", "default_task_env"),
    **_none(_IMAGE, "docker_image", "default_task_image", "runtime"),
    **_none("all workers have defaults.worker.port and cache_dir", "cache_dir", "port", "labels"),
}
_GROUP: Final[Table] = {
    "accelerator_type": TEXT,
    "accelerator_variant": TEXT,
    "num_vms": COUNT,
    "resources": section(_RESOURCES),
    "worker": section(_GROUP_WORKER),
    "slice_template": section(_TEMPLATE),
    **_none("defaults.autoscaler.creates_per_minute limits all groups", "scale_up_rate_limit", "scale_down_rate_limit"),
}
_SIZE: Final[Table] = {"min_slices": COUNT, "max_slices": COUNT, "buffer_slices": COUNT}
_WORKER: Final[Table] = {
    "task_env": TEXTS,
    "default_task_env": TEXTS,
    "default_task_image": TEXT,
    **_none(_IMAGE, "docker_image", "runtime"),
    **_none("tasks get the ports that they ask for (`iris worker start --port-range`)", "port_range"),
    **_none("attributes belong to groups", "attributes"),
}
_OLDER: Final[Table] = {
    "platform": section(
        {
            "gcp": section(_none("each group names its zones", "zones", "zone", "region")),
            **_none(_NOT_HERE, "coreweave", "local"),
        }
    ),
    "controller": section(
        {
            "gcp": section(_none(_DEFAULT, "disk_type", "network", "subnetwork")),
            **_none(_IMAGE, "image"),
            **_none(_NOT_HERE, "local", "coreweave", "kubernetes"),
            **_none(_BUNDLES, "bundle_prefix"),
            **_none(_SILENCE, "heartbeat_failure_threshold", "worker_timeout"),
        }
    ),
    "storage": section(
        {
            **_none(_BUNDLES, "bundle_prefix"),
            **_none("logs are kept in the controller's state directory (controller.log_limit)", "log_prefix"),
            **_none("write it as controller.state_dir", "local_state_dir"),
            **_none("each commit is written to remote_state_dir at once (docs/durability.md)", "checkpoint_interval"),
        }
    ),
    "defaults": section(
        {
            "autoscaler": section(_none("the autoscaler plans for each submission at once", "scale_up_delay")),
            "ssh": section(_none(_SSH, "auth_mode", "os_login_user", "impersonate_service_account")),
            "worker": section(_WORKER),
            **_none("defaults.autoscaler has boot_timeout and call_timeout", "timeouts"),
        }
    ),
    "scale_groups": items(_GROUP),
    "tpu_pools": items(
        {
            "name": TEXT,
            "family": TEXT,
            "zones": NAMES,
            "sizes": Key(Kind.ANY),
            "base_priority": COUNT,
            "priority": COUNT,
            "preemptible": FLAG,
            "resources": section(_RESOURCES),
        }
    ),
    "user_budgets": items(
        {
            "user": TEXT,
            "user_id": TEXT,
            "user_ids": NAMES,
            "limit": Key(Kind.ANY),
            "budget_limit": Key(Kind.ANY),
            "max_band": TEXT,
        }
    ),
    **_none("tokens are made with `iris user token create`", "auth"),
    **_none(_ADDRESSES, "endpoints"),
    **_none("logs are kept by the controller (controller.log_limit)", "log_server_config"),
    **_none(_PROVIDER, "worker_provider", "kubernetes_provider"),
}


def merged(first: Table, second: Table) -> Table:
    """Return the keys of both tables. Where both have a section, its keys are merged."""
    made = {**first, **second}
    for key in first.keys() & second.keys():
        if first[key].keys and second[key].keys:
            made[key] = replace(first[key], keys=merged(first[key].keys, second[key].keys))
    return made


_BOTH: Final = merged(ROOT, _OLDER)
_POOL_PARTS: Final = ("worker", "slice_template", "quota_pool", "capacity_type", "hourly_price")
_POOL: Final[Table] = {
    **_BOTH["tpu_pools"].keys,
    **{key: _BOTH["scale_groups"].keys[key] for key in _POOL_PARTS},
    "sizes": Key(Kind.ITEMS, keys={**_SIZE, "name": Key(Kind.ANY)}),
}
FILE: Final[Table] = {**_BOTH, "tpu_pools": items(_POOL)}
"""All keys that a cluster file may have."""

FAMILIES: Final[Mapping[str, str]] = MappingProxyType({"v5e": "v5litepod", "v5p": "v5p", "v6e": "v6e", "v4": "v4"})

GROUP_PLACES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "cpu": ("resources.cpu",),
        "memory": ("resources.ram", "resources.memory"),
        "disk": ("resources.disk",),
        "hosts_per_slice": ("num_vms", "slice_template.num_vms"),
        "region": ("worker.attributes.region",),
        "zone": ("slice_template.gcp.zone", "worker.attributes.zone"),
        "capacity_type": ("resources.capacity_type", "slice_template.capacity_type"),
        "preemptible": ("resources.preemptible", "slice_template.preemptible", "worker.attributes.preemptible"),
        "accelerator.type": ("accelerator_type", "slice_template.accelerator_type", "resources.device_type"),
        "accelerator.variant": (
            "accelerator_variant",
            "slice_template.accelerator_variant",
            "resources.device_variant",
        ),
        "accelerator.count": ("resources.device_count", "resources.tpu_count", "resources.gpu_count"),
        "slice_template.gcp.image": ("slice_template.gcp.boot_image",),
        "slice_template.gcp.boot_disk_size_gb": ("slice_template.gcp.disk_size_gb", "slice_template.disk_size_gb"),
        "slice_template.gcp.labels": ("slice_template.labels",),
    }
)
"""Our keys of a group, and the places where the predecessor's files may have their values."""

BUDGET_PLACES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"name": ("user", "user_id"), "max_weight": ("limit", "budget_limit"), "max_band": ()}
)
DEFAULTS_PLACES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "task_env": ("worker.task_env", "worker.default_task_env"),
        "task_image": ("worker.default_task_image",),
    }
)
