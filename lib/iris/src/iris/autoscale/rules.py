"""Settings of the autoscaler and of platforms. Times are in seconds. Pure."""

from dataclasses import dataclass, field
from typing import Final

GOOGLE_ENDPOINT: Final = "IRIS_GOOGLE_ENDPOINT"
"""The variable with the address of a test server in Google's place."""


@dataclass(frozen=True, slots=True)
class AutoscaleRules:
    """Settings of the autoscaler.

    Args:
        look_s: Interval between lists of the provider's slices.
        idle_s: A slice beyond the minimum and buffer is released after being unused for this long.
        boot_deadline_s: A slice that has not joined by then is replaced.
        call_deadline_s: Deadline of a provider's call.
        short_life_s: A slice lost within this time of joining had a short life.
        creates_per_minute, creates_per_hour: Limits of creations, for all groups.
        max_hosts: Maximum number of hosts of all slices; 0 for no limit.
        crowded_s: Like `idle_s`, while a job waits because `max_hosts` is reached.
        notice_after_s: A notice tells of capacity that is missing for this long.
    """

    look_s: float = 10
    idle_s: float = 300
    boot_deadline_s: float = 900
    call_deadline_s: float = 60
    short_life_s: float = 1800
    creates_per_minute: int = 60
    creates_per_hour: int = 1000
    max_hosts: int = 0
    crowded_s: float = 2
    notice_after_s: float = 1800


@dataclass(frozen=True, slots=True)
class SshSettings:
    """Settings for reaching hosts by ssh.

    Args:
        user: The user; empty for the current one.
        key_file: The private key; empty for the agent's and the usual files.
        port: The port.
        connect_timeout_s: Deadline of a connection.
        known_hosts_file: Empty for the user's `~/.ssh/known_hosts`.
    """

    user: str = ""
    key_file: str = ""
    port: int = 22
    connect_timeout_s: float = 10
    known_hosts_file: str = ""


@dataclass(frozen=True, slots=True)
class ControllerHost:
    """The place of the cluster's controller.

    Args:
        zone, machine_type, disk_size_gb, service_account, image: Of a virtual machine at Google.
        host: The address of a host that exists; empty for a virtual machine.
        port: The controller's port.
    """

    zone: str = ""
    machine_type: str = ""
    disk_size_gb: int = 0
    service_account: str = ""
    image: str = ""
    host: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class Platform:
    """The platform and common settings of a cluster's machines.

    Args:
        project_id: Google's project; empty without Google.
        label_prefix: The beginning of the names and labels of what the cluster creates; empty for the cluster's name.
        controller: Where the controller runs; None where an operator starts it.
        ssh: How to reach hosts by ssh.
        worker_port: The port of workers; 0 for any.
        cache_dir: The directory of workers' files; empty for the default.
        environment: Variables of workers. task_environment: Variables of tasks.
        task_image: Container image of tasks whose job names none; empty for none.
    """

    project_id: str = ""
    label_prefix: str = ""
    controller: ControllerHost | None = None
    ssh: SshSettings = field(default_factory=SshSettings)
    worker_port: int = 0
    cache_dir: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    task_environment: tuple[tuple[str, str], ...] = ()
    task_image: str = ""
