"""Ray cluster files, rendered from a template and the settings of a cluster."""

import json
import re
from collections.abc import Mapping
from typing import Final

from marin.run.cluster.file.settings import Capacity, ClusterSettings, WorkerSettings
from rigging.errors import InvalidRequest
from rigging.topology import get_tpu_generation, get_tpu_topology

_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")
_WHOLE_LINE: Final = re.compile(r"^\{\{(\w+)\}\}\n", re.MULTILINE)
_HISTORY: Final = "/opt/marin-ray-history"
_MADE: Final = (
    "# Made by `python -m marin.run.cluster generate` from clusters.toml and marin-cluster-template.yaml, "
    "beside this file.\n# Change those; a test compares."
)
_SCHEDULING: Final = {
    Capacity.PREEMPTIBLE: "{preemptible: true}",
    Capacity.RESERVED: "{reserved: true}",
    Capacity.ON_DEMAND: "{preemptible: false}",
}


def render(template: str, settings: ClusterSettings) -> str:
    """Return the cluster file of `settings`.

    Raises:
        InvalidRequest: The template uses an unknown value, or omits one.
    """
    values = {
        "cluster_name": settings.cluster_name,
        "max_workers": str(sum(worker.max for worker in settings.workers)),
        "upscaling_speed": f"{settings.upscaling_speed:g}",
        "idle_timeout_minutes": str(settings.idle_timeout_minutes),
        "region": settings.region,
        "zone": settings.zone,
        "project": settings.project,
        "ssh_user": settings.ssh_user,
        "image": settings.image,
        "marin_prefix": settings.marin_prefix,
        "token_url": settings.token_url,
        "auth_mode": "token" if settings.token_auth else "disabled",
        "head_machine": settings.head_machine,
        "head_disk_gb": str(settings.head_disk_gb),
        "head_image": settings.head_image,
        "heartbeat_timeout_seconds": str(settings.heartbeat_timeout_seconds),
        **_history(settings.keep_job_history),
        "worker_types": "\n".join(_worker_type(worker, settings) for worker in settings.workers),
    }
    # The template's own first line says what the template is.
    return f"{_MADE}\n{_fill(template.partition(chr(10))[2], values)}"


def worker_resources(tpu: str, visible_cpus: int) -> dict[str, int]:
    """Return the Ray resources of a slice's hosts. Ray gives the last entry only to the first host."""
    topology = get_tpu_topology(tpu)
    cpus = get_tpu_generation(tpu).vm_cpus[topology.chips_per_vm]
    return {"CPU": min(visible_cpus, cpus), "TPU": topology.chips_per_vm, f"TPU-{tpu}-head": 1}


def _history(kept: bool) -> dict[str, str]:
    """Return the location of the head's state: a folder of its VM, or memory."""
    if not kept:
        return {"history_mount": "", "history_folder": "", "history_storage": ""}
    return {
        "history_mount": f"  head_run_options:\n    - -v {_HISTORY}:{_HISTORY}  # jobs that were",
        # For whichever user the image has.
        "history_folder": f"  - sudo install -d -m 1777 {_HISTORY}",
        "history_storage": f" RAY_gcs_storage=rocksdb RAY_gcs_storage_path={_HISTORY}/gcs",
    }


def _worker_type(worker: WorkerSettings, settings: ClusterSettings) -> str:
    hosts = get_tpu_topology(worker.tpu).vm_count
    note = f"  # slices of {hosts} hosts; resources are those of one" if hosts > 1 else ""
    return (
        f"  {worker.name}:{note}\n"
        f"    min_workers: {worker.min}\n"
        f"    max_workers: {worker.max}\n"
        f"    resources: {json.dumps(worker_resources(worker.tpu, settings.visible_cpus))}\n"
        f"    node_config:\n"
        f"      acceleratorType: {worker.tpu}\n"
        f"      runtimeVersion: {get_tpu_generation(worker.tpu).runtime_version}\n"
        f"      schedulingConfig: {_SCHEDULING[Capacity(worker.capacity)]}"
    )


def _fill(template: str, values: Mapping[str, str]) -> str:
    named = set(_PLACE.findall(template))
    unknown, unused = sorted(named - set(values)), sorted(set(values) - named)
    if unknown or unused:
        what = f"names unknown values {', '.join(unknown)}" if unknown else f"leaves out {', '.join(unused)}"
        raise InvalidRequest(f"the template {what}; values are {', '.join(values)}")
    without_empty = _WHOLE_LINE.sub(lambda line: line[0] if values[line[1]] else "", template)
    return _PLACE.sub(lambda place: values[place[1]], without_empty)
