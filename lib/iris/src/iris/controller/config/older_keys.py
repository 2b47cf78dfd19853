"""The keys of the predecessor's cluster files, and why some have no effect here."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_ADDRESSES: Final = "jobs and clients find what they need through the controller"
_MACHINES: Final = "how machines are made is the provider's matter, and there is none here yet"
_IMAGE: Final = "no containers: a task runs in the environment of its job's own lock file"

REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "platform": _MACHINES,
        "defaults": "workers and the scheduler need no such settings here",
        "auth": "tokens are made with `iris user token create`",
        "endpoints": _ADDRESSES,
        "log_server_config": "logs are kept by the controller (controller.log_limit)",
        "worker_provider": _MACHINES,
        "kubernetes_provider": _MACHINES,
    }
)
"""Skipped sections, with reasons."""

CONTROLLER_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "image": _IMAGE,
        **dict.fromkeys(("gcp", "manual", "local", "coreweave", "kubernetes"), _MACHINES),
        "bundle_prefix": "code is kept in the controller's state directory (controller.state_dir)",
        "heartbeat_failure_threshold": "a worker is lost after a minute of silence (docs/durability.md)",
        "worker_timeout": "a worker is lost after a minute of silence (docs/durability.md)",
    }
)
STORAGE_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bundle_prefix": "code is kept in the controller's state directory (controller.state_dir)",
        "log_prefix": "logs are kept in the controller's state directory (controller.log_limit)",
        "local_state_dir": "write it as controller.state_dir",
        "checkpoint_interval": "every commit is written to remote_state_dir at once (docs/durability.md)",
    }
)
TEMPLATE_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(
        (
            *(
                "runtime_version",
                "machine_type",
                "boot_disk_size_gb",
                "disk_type",
                "network",
                "subnetwork",
                "project_id",
            ),
            *(
                "service_account",
                "instance_type",
                "mode",
                "tags",
                "labels",
                "region",
                "hosts",
                "ssh_user",
                "ssh_key_file",
            ),
            *("name_prefix", "boot_image", "image", "topology", "tpu_topology", "reservation", "ssh"),
        ),
        _MACHINES,
    )
)
GROUP_KEYS_THERE: Final = (
    *("accelerator_type", "accelerator_variant", "num_vms", "resources", "slice_template", "worker", "zones"),
    *("buffer_slices", "priority", "quota_pool", "allocation_tier"),
)
RESOURCE_KEYS: Final = (
    *("cpu", "ram", "memory", "disk", "device_type", "device_variant", "device_count", "tpu_count", "gpu_count"),
    *("preemptible", "capacity_type"),
)
TEMPLATE_KEYS: Final = (
    *("gcp", "coreweave", "manual", "local", "num_vms", "accelerator_type", "accelerator_variant", "capacity_type"),
    *("preemptible", *TEMPLATE_REASONS),
)
WORKER_KEYS: Final = ("attributes", "env", "task_env", "docker_image", "cache_dir", "port", "labels")
POOL_KEYS: Final = (
    *("name", "family", "zones", "sizes", "resources", "worker", "preemptible", "base_priority", "priority"),
)
SIZE_KEYS: Final = ("min_slices", "max_slices", "buffer_slices")
FAMILIES: Final[Mapping[str, str]] = MappingProxyType({"v5e": "v5litepod", "v5p": "v5p", "v6e": "v6e", "v4": "v4"})
DISAGREE: Final = "{where} is {value!r}, but {other} is {first!r}; give it once"
