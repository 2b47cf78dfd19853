"""Starts a worker of a cluster on this host: determines its name, credential and resources."""

import contextlib
import json
import logging
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris.autoscale.boot.script import TASK_VARIABLES
from iris.autoscale.model import SLICE_ATTRIBUTE, worker_id_of
from iris.domain.constraints import HOST_ADDRESS_ATTRIBUTE
from iris.domain.resources import Device, Resources
from iris.local.declared_devices import declared_device, device_attributes
from iris.rpc.channels import CA_VARIABLE, INSECURE_VARIABLE
from iris.rpc.key_proof import load_or_create_key
from iris.tls.pins import JoinTokenText, parse_join_token
from iris.tls.token_file import privacy_warning, token_in
from iris.tls.trust import is_loopback
from iris.worker.app import WorkerConfig, run_worker, work_dir_holder
from iris.worker.connection.agent import Resolver
from iris.worker.connection.credential import (
    Credential,
    accepted,
    check_owner,
    new_credential,
    read_credential,
    write_credential,
)
from iris.worker.connection.joining import join_cluster
from iris.worker.containers.engine import AUTO
from iris.worker.devices.allotment import NO_CHIPS, Chips
from iris.worker.devices.found import DEV, check_devices
from iris.worker.devices.holders import gpu_holders, remove_stale_lock, tpu_holders
from iris.worker.host.environment import hide_own_environment
from iris.worker.host.gce import read_identity, tell_phase, telling_failure
from iris.worker.host.preemption import GceHost, Platform
from iris.worker.host.probe import probe_resources, source_address
from iris.worker.limits.plan import LimitsMode
from iris.worker.limits.service_group import leave_service_group
from iris.worker.prepare.task_env import ACTOR_HOST_VARIABLE
from iris.worker.users.host import check_host, claim, device_groups
from iris.worker.users.uids import TaskUsers, UidRange, parse_uid_range
from rigging.errors import Conflict, Denied, InvalidRequest, MarinError
from rigging.text.quantities import format_size

logger = logging.getLogger(__name__)

_FOR_EVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker's command line; None for automatic values.

    Args:
        controller: "host:port".
        work_dir: The worker's data, including its credential.
        join_token_file: The file with the join token, required only at the first start.
        name: The worker's name in the cluster; None for the last start's name, else the host's.
        attributes: Attributes for constraints, in addition to the detected ones.
        slice_name: The slice, whose hosts a gang uses together.
        slice_index: The host's number in its slice.
        tpu: Type of the host's TPU slice.
        gpu: "TYPE:N".
        port_range: First and last port for tasks.
        limits: How the limits of tasks are enforced.
        max_processes: Maximum number of processes and threads of a task; 0 for most of the host's maximum.
        insecure: Allow unencrypted tokens beyond loopback.
        task_users: Uids for tasks, one per user: "FIRST-LAST"; "off" to run tasks as the worker's user.
        containers: Runs tasks with an image: "auto", "off", or a command of podman or docker.
        platform: The platform of the host. On GCE, its name, slice, TPU type and zone come from the metadata server.
        dev: The directory of device files.
    """

    controller: str
    work_dir: Path
    join_token_file: Path | None = None
    name: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    slice_name: str | None = None
    slice_index: int | None = None
    tpu: str | None = None
    gpu: str | None = None
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    port_range: tuple[int, int] | None = None
    limits: str = LimitsMode.AUTO.value
    max_processes: int = 0
    insecure: bool = False
    task_users: str = "off"
    containers: str = AUTO
    platform: str = Platform.NONE.value
    dev: Path = DEV


def start_worker(options: WorkerOptions) -> int:
    """Run a worker in this process until a signal or the controller ends it; join the cluster first if necessary.

    Args:
        options: The command line options.

    Returns:
        The exit code.

    Raises:
        Denied: The controller refuses the worker, or has another CA than the token pins.
        Conflict: The name or the work directory belongs to another worker.
        InvalidRequest: An option or file is invalid.
    """
    hide_own_environment()
    is_gce = options.platform == Platform.GCE
    if is_gce:
        GceHost().wait_while_ending()
    with telling_failure() if is_gce else contextlib.nullcontext():
        config, resolve = _prepare(_on_gce(options) if is_gce else options)
        if is_gce:
            tell_phase("joined")
        return run_worker(config, resolve)


def _on_gce(options: WorkerOptions) -> WorkerOptions:
    """Return the options with what the host is at Google; what was given stays."""
    host = read_identity()
    if options.tpu and host.tpu and options.tpu != host.tpu:
        raise InvalidRequest(f"--tpu {options.tpu}, and the metadata server says {host.tpu}: leave the option out")
    slice_name = options.slice_name or host.slice_name
    number = host.number if options.slice_index is None else options.slice_index
    return replace(
        options,
        name=options.name or worker_id_of(slice_name, number),
        slice_name=slice_name,
        slice_index=number,
        tpu=options.tpu or host.tpu or None,
        attributes=host.attributes | dict(options.attributes),
    )


def _prepare(options: WorkerOptions) -> tuple[WorkerConfig, Resolver]:
    """Join the cluster if necessary; return the worker's settings, and where its controller is."""
    if options.limits == LimitsMode.AUTO:
        leave_service_group()  # before the guardian is started, which is born where this process is
    device = declared_device(options.tpu, options.gpu)
    device_attributes(device, options.slice_name, options.slice_index, "")  # refused before anything is made
    chips = _chips(device, options.dev)
    uids = None if options.task_users == "off" else parse_uid_range(options.task_users)
    if uids is not None:
        check_host(uids, options.work_dir)
    _make(options.work_dir)
    if holder := work_dir_holder(options.work_dir):
        raise Conflict(
            f"a worker already runs in {options.work_dir} (process {holder}); stop it first, or give another --work-dir"
        )
    users = None if uids is None else _task_users(uids, options.work_dir)
    credential = _credential(options)
    address = credential.address(options.controller, options.insecure)
    variables: dict[str, str] = json.loads(os.environ.pop(TASK_VARIABLES, "{}"))
    if credential.ca_sha256:
        variables[CA_VARIABLE] = credential.ca_sha256
    if options.insecure:
        variables[INSECURE_VARIABLE] = "1"
    slice_attribute = {SLICE_ATTRIBUTE: options.slice_name} if options.slice_name else {}
    own_address = os.environ.get(ACTOR_HOST_VARIABLE) or source_address(options.controller)
    config = WorkerConfig(
        work_dir=options.work_dir,
        worker_id=credential.worker_id,
        capacity=_capacity(options, device),
        attributes={
            **device_attributes(device, options.slice_name, options.slice_index, credential.worker_id),
            **options.attributes,
            **slice_attribute,
            **({HOST_ADDRESS_ATTRIBUTE: own_address} if own_address else {}),
        },
        orphan_timeout_s=_FOR_EVER,
        port_range=options.port_range,
        limits=LimitsMode(options.limits),
        max_processes=options.max_processes,
        task_variables=variables,
        key=_key(options.work_dir),
        task_users=users,
        containers=options.containers,
        platform=Platform(options.platform),
        chips=chips,
    )
    logger.info("worker %s of the cluster at %s, in %s", credential.worker_id, options.controller, options.work_dir)
    return config, lambda: address


def _chips(device: Device | None, dev: Path) -> Chips:
    """Return the accelerators to allot. Raise InvalidRequest if the host lacks declared ones."""
    found = check_devices(device, dev)
    if device is None:
        return NO_CHIPS
    if device.kind == "gpu":
        return Chips(device, found, gpu_holders)
    return Chips(device, found, tpu_holders, remove_stale_lock)


def default_work_dir(environ: Mapping[str, str]) -> Path:
    """Return the default work directory: iris/worker in XDG_STATE_HOME or ~/.local/state."""
    base = environ.get("XDG_STATE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/state")) / "iris" / "worker"


def parse_port_range(text: str) -> tuple[int, int]:
    """Return the first and last port of "A-B".

    Raises:
        InvalidRequest: The text is not a range of ports.
    """
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= first <= last <= 65_535:
        raise InvalidRequest(f"the port range {text!r} must be FIRST-LAST, both from 1 to 65535, e.g. 20000-20999")
    return first, last


def parse_attributes(words: tuple[str, ...]) -> dict[str, str]:
    """Return the attributes of "key=value" words.

    Raises:
        InvalidRequest: A word has no key, or a key occurs twice.
    """
    found: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", key) or key in found:
            raise InvalidRequest(
                f"the attribute {word!r} must be key=value, each key once, of letters, digits and _ . - after a letter"
            )
        found[key] = value
    return found


def _credential(options: WorkerOptions) -> Credential:
    """Return the worker's credential; join the cluster first if the controller has not accepted it."""
    found = read_credential(options.work_dir)
    if found is not None and found.joined:
        check_owner(found, options.name or "", options.work_dir)
        return found
    if options.join_token_file is None:
        raise InvalidRequest(
            f"{options.work_dir} has no credential yet: give --join-token-file FILE with what "
            "`iris cluster token create` printed"
        )
    token = _read_join_token(options.join_token_file)
    _check_privacy(options, token)
    name = options.name or (socket.gethostname() if found is None else found.worker_id)
    if found is None or (found.ca_sha256, found.worker_id) != (token.ca_sha256, name):
        # Another name than that of the last try: that one may have been refused, and nothing runs under it here.
        found = new_credential(name, token.ca_sha256)
        # Kept before it is sent: when the answer is lost, the next try is the same one.
        _keep(options.work_dir, found)
    release = join_cluster(options.controller, token, found, insecure=options.insecure)
    found = accepted(found)
    _keep(options.work_dir, found)
    logger.info("joined the cluster at %s (iris %s) as %s", options.controller, release, found.worker_id)
    return found


def _task_users(uids: UidRange, work_dir: Path) -> TaskUsers:
    try:
        claim(uids)  # until this process ends
        groups, closed = device_groups()
        users = TaskUsers(work_dir, uids, groups)
    except OSError as error:
        if isinstance(error, MarinError):
            raise
        raise InvalidRequest(f"--task-users {uids} cannot be used: {error}") from None
    if closed:
        logger.warning(
            "only root may use %s, so tasks cannot (--task-users); give access to one of their groups", closed
        )
    logger.info("tasks run as users of their own, uids %s, groups %s", uids, list(groups))
    return users


def _key(work_dir: Path) -> Ed25519PrivateKey:
    try:
        return load_or_create_key(work_dir)
    except OSError as error:
        if isinstance(error, MarinError):
            raise
        raise InvalidRequest(f"cannot keep the worker's key in {work_dir}: {error.strerror}") from None


def _keep(work_dir: Path, credential: Credential) -> None:
    try:
        write_credential(work_dir, credential)
    except OSError as error:
        raise InvalidRequest(f"cannot keep the worker's credential in {work_dir}: {error.strerror}") from None


def _check_privacy(options: WorkerOptions, token: JoinTokenText) -> None:
    if token.ca_sha256 or is_loopback(options.controller):
        return
    if not options.insecure:
        raise Denied(
            f"the controller of this join token serves without TLS, so nothing is sent to {options.controller}: serve "
            "with TLS (the default beyond loopback) and create a new token, or give --insecure on a network you trust"
        )


def _read_join_token(path: Path) -> JoinTokenText:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read the join token {path}: {error.strerror}") from None
    if warning := privacy_warning(str(path)):
        logger.warning("%s", warning)
    text = token_in(content, str(path))
    try:
        return parse_join_token(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}") from None


def _capacity(options: WorkerOptions, device: Device | None) -> Resources | None:
    cpu, memory, disk = options.cpu_millis, options.memory_bytes, options.disk_bytes
    if cpu is None and memory is None and disk is None and device is None:
        return None
    found = probe_resources(options.work_dir)
    for warning in overcommitments(options, found):
        logger.warning("%s", warning)
    return Resources(
        found.cpu_millis if cpu is None else cpu,
        found.memory_bytes if memory is None else memory,
        found.disk_bytes if disk is None else disk,
        device,
    )


def overcommitments(options: WorkerOptions, found: Resources) -> list[str]:
    """Return a warning for each option that exceeds the host's resources. Pure.

    Args:
        options: The command line options.
        found: The host's resources.
    """
    offers = (
        ("--memory", options.memory_bytes, found.memory_bytes, "tasks that use what they asked for may be killed"),
        ("--disk", options.disk_bytes, found.disk_bytes, "tasks that use what they asked for may find the disk full"),
    )
    return [
        f"{option} offers {format_size(offered)}, and this host has {format_size(has)}: {so}"
        for option, offered, has, so in offers
        if offered is not None and offered > has
    ]


def _make(work_dir: Path) -> None:
    try:
        work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Tasks with uids of their own pass through it to what is theirs.
        work_dir.chmod(0o711 if (work_dir / "users").exists() else 0o700)
    except OSError as error:
        raise InvalidRequest(f"cannot keep a worker in {work_dir} (--work-dir): {error.strerror}") from None
