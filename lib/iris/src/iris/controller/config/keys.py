"""The keys of a cluster file, by section."""

from typing import Final

SECTIONS: Final = ("name", "controller", "storage", "scale_groups", "user_budgets", "notify", "limits")
CONTROLLER_KEYS: Final = (
    *("address", "token_file", "host", "port", "insecure", "state_dir", "log_limit", "worker_lost_after"),
    *("dashboard_port", "partition_patience"),
)
STORAGE_KEYS: Final = ("remote_state_dir", "durability", "disk_reserve")
GROUP_KEYS: Final = (
    *("name", "accelerator", "cpu", "memory", "disk", "hosts_per_slice", "min_slices", "max_slices"),
    *("region", "zone", "preemptible", "attributes"),
)
ACCELERATOR_KEYS: Final = ("type", "variant", "count")
LIMITS_KEYS: Final = ("mode", "force", "unstated")
NOTIFY_KEYS: Final = ("url", "allow")
BUDGET_KEYS: Final = ("name", "max_weight", "max_band")
