"""Find mistakes in a Ray cluster file that Ray itself reports late or never. No cloud is contacted."""

import difflib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from marin.run.cluster.file.node_config_keys import INSTANCE_KEYS, TPU_KEYS, keys
from rigging.errors import InvalidRequest
from rigging.topology import TPU_TOPOLOGIES, TpuTopologyInfo, get_tpu_generation, get_tpu_topology

_PROVIDER_KEYS: Final = keys(
    "type region availability_zone project_id cache_stopped_nodes use_internal_ips gcp_credentials "
    "disable_node_updaters disable_launch_config_check"
)
_LABEL: Final = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_CLUSTER_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,36}[a-z0-9])?")
_TOPOLOGY: Final = re.compile(r"\d+x\d+(x\d+)?")


def check_cluster_file(config: Mapping[str, Any], origin: str) -> None:
    """Raise InvalidRequest that lists all mistakes of a cluster file, with their places and the allowed values."""
    mistakes = find_mistakes(config)
    if mistakes:
        listed = "\n".join(f"  {mistake}" for mistake in mistakes)
        raise InvalidRequest(f"{origin} has {len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}:\n{listed}")


def find_mistakes(config: Mapping[str, Any]) -> list[str]:
    """Return the mistakes of a cluster file. Without provider `gcp`, only its form and numbers of workers are
    checked.
    """
    types = config.get("available_node_types") or {}
    found = [*_number_mistakes(config, types)]
    head = config.get("head_node_type")
    if types and head not in types:
        found.append(f"head_node_type {head!r} is not one of the types: {', '.join(map(str, types))}")
    provider = config.get("provider") or {}
    if provider.get("type") == "gcp":
        found += _provider_mistakes(provider)
        if not _CLUSTER_NAME.fullmatch(str(config.get("cluster_name", ""))):
            found.append(
                f"cluster_name {config.get('cluster_name')!r}: VM names contain it, so use at most 38 small letters, "
                "digits and -"
            )
        if not types:
            found.append("available_node_types: empty")
        for name, node_type in types.items():
            found += _type_mistakes(str(name), node_type, is_head=name == head)
    # Of one place our own words are enough.
    return [*found, *(text for owner, text in schema_mistakes(config) if not _tells_of(found, owner))]


def _tells_of(mistakes: Sequence[str], owner: str) -> bool:
    return bool(owner) and any(re.match(rf"{re.escape(owner)}\b", mistake) for mistake in mistakes)


def _provider_mistakes(provider: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(provider, _PROVIDER_KEYS, "provider")
    for key, example in (
        ("project_id", "my-project"),
        ("region", "us-central2"),
        ("availability_zone", "us-central2-b"),
    ):
        if not provider.get(key):
            yield f"provider: it has no {key}; write e.g. {key}: {example}"
    region, zone = provider.get("region"), provider.get("availability_zone")
    if region and zone and str(zone).rpartition("-")[0] != region:
        yield f"provider: availability_zone {zone!r} is not in region {region!r}"


def _number_mistakes(config: Mapping[str, Any], types: Mapping[str, Any]) -> Iterator[str]:
    total = config.get("max_workers")
    most = {}
    for name, node_type in types.items():
        least, highest = node_type.get("min_workers", 0), node_type.get("max_workers", total)
        if not isinstance(least, int) or not isinstance(highest, int):
            yield f"{name}: min_workers and max_workers must be whole numbers, not {least!r} and {highest!r}"
            continue
        if not 0 <= least <= highest:
            yield f"{name}: min_workers {least} must be from 0 to its max_workers, {highest}"
        most[name] = highest
    if types and total is None:
        yield "max_workers is missing: Ray would allow 2 workers in all"
    elif isinstance(total, int) and total < sum(most.values()):
        yield (
            f"max_workers {total} is less than the sum of the types' own, {sum(most.values())}: "
            "some types could never reach their maximum"
        )


def _type_mistakes(name: str, node_type: Mapping[str, Any], *, is_head: bool) -> Iterator[str]:
    if not _LABEL.fullmatch(name):
        yield f"{name}: nodes are labelled with the type's name, so use at most 63 small letters, digits, _ and -"
    config, resources = node_type.get("node_config"), node_type.get("resources") or {}
    if not isinstance(config, Mapping):
        yield f"{name}: it has no node_config"
        return
    is_tpu = "machineType" not in config
    yield from _key_mistakes(config, TPU_KEYS if is_tpu else INSTANCE_KEYS, f"{name}.node_config")
    if is_head:
        yield from _head_mistakes(name, node_type, config, resources)
    if is_tpu:
        yield from _tpu_mistakes(name, config, resources)


def _key_mistakes(config: object, known: Mapping[str, frozenset[str]], owner: str, path: str = "") -> Iterator[str]:
    if isinstance(config, Sequence) and not isinstance(config, str):
        for index, each in enumerate(config):
            yield from _key_mistakes(each, known, f"{owner}[{index}]", path)
    elif not isinstance(config, Mapping):
        yield f"{owner}: {config!r} is not an object"
    else:
        yield from _unknown(config, known[path], owner)
        for key, value in config.items():
            inner = f"{path}.{key}".lstrip(".")
            if inner in known:
                yield from _key_mistakes(value, known, f"{owner}.{key}", inner)


def _unknown(found: Mapping[str, Any], known: frozenset[str], owner: str) -> Iterator[str]:
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            yield f"{owner}: unknown key {key!r}; {hint}"


def _head_mistakes(
    name: str, node_type: Mapping[str, Any], config: Mapping[str, Any], resources: Mapping[str, Any]
) -> Iterator[str]:
    if "machineType" not in config:
        yield f"{name}: the head must be a VM with a machineType; a TPU may be preempted at any time"
    work = {key: amount for key, amount in resources.items() if amount}
    if "CPU" not in resources or work:
        shown = ", ".join(f"{key}: {amount}" for key, amount in work.items()) or "no CPU, so Ray uses all CPUs"
        yield f'{name}: the head must run no tasks; write resources: {{"CPU": 0}} (it has {shown})'
    if node_type.get("max_workers", 0):
        yield f"{name}: the head's type has max_workers {node_type['max_workers']}; write 0, as there is one head"
    scheduling = config.get("scheduling")
    for each in scheduling if isinstance(scheduling, Sequence) else [scheduling]:
        if isinstance(each, Mapping) and (each.get("preemptible") or each.get("provisioningModel") == "SPOT"):
            yield f"{name}: the head must be on demand; without it the cluster and all its jobs are gone"


def _tpu_mistakes(name: str, config: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[str]:
    try:
        topology = _topology(config)
    except InvalidRequest as error:
        yield f"{name}.node_config: {error}"
        return
    if not config.get("runtimeVersion"):
        version = get_tpu_generation(topology.name).runtime_version
        yield f"{name}.node_config: it has no runtimeVersion; for {topology.name} write e.g. {version}"
    scheduling = config.get("schedulingConfig")
    if isinstance(scheduling, Mapping) and scheduling.get("reserved") and scheduling.get("preemptible"):
        yield f"{name}.node_config.schedulingConfig: reserved and preemptible exclude each other"
    chips, head = topology.chips_per_vm, f"TPU-{topology.name}-head"
    if resources.get("TPU") != chips:
        yield f"{name}.resources: a host of {topology.name} has TPU: {chips}, not {resources.get('TPU')!r}"
    if resources.get(head) != 1:
        yield f"{name}.resources: tasks ask for {head!r} to get a whole slice; write {head}: 1"
    for other in resources:
        if other.startswith("TPU-") and other.endswith("-head") and other != head:
            yield f"{name}.resources: {other} is of another TPU type than {topology.name}"
    cpus = get_tpu_generation(topology.name).vm_cpus[chips]
    if not isinstance(resources.get("CPU"), int) or not 0 < resources["CPU"] <= cpus:
        yield f"{name}.resources: CPU must be from 1 to {cpus}, which a VM has, not {resources.get('CPU')!r}"


def _topology(config: Mapping[str, Any]) -> TpuTopologyInfo:
    given = config.get("acceleratorConfig")
    if "acceleratorType" in config and given is not None:
        raise InvalidRequest("give acceleratorType or acceleratorConfig, not both")
    if "acceleratorType" in config:
        return get_tpu_topology(str(config["acceleratorType"]))
    if not isinstance(given, Mapping) or not given.get("type") or not given.get("topology"):
        raise InvalidRequest("it is neither a VM (machineType) nor a TPU (acceleratorType, e.g. v4-8)")
    generation = str(given["type"]).lower().replace("v5lite_pod", "v5litepod")
    text = str(given["topology"])
    if not _TOPOLOGY.fullmatch(text):
        raise InvalidRequest(f"topology {text!r} is invalid; write e.g. 2x2x2 or 4x4")
    chips = 1
    for side in text.split("x"):
        chips *= int(side)
    shapes = [each for each in TPU_TOPOLOGIES if each.name.rpartition("-")[0] == generation]
    found = next((each for each in shapes if each.chip_count == chips), None)
    if found is None:
        sizes = ", ".join(str(each.chip_count) for each in shapes) or f"none: {given['type']!r} is unknown"
        raise InvalidRequest(f"topology {text!r} has {chips} chips; {generation} slices have {sizes}")
    return found


_TYPES: Final = "available_node_types"


def schema_mistakes(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the mistakes by place (a key of the file, or a worker type); none if Ray is not installed."""
    # Ray itself takes a second to import.
    ray = importlib.util.find_spec("ray")
    if ray is None or ray.origin is None:
        return
    import jsonschema  # type: ignore[import-untyped]

    schema = json.loads((Path(ray.origin).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8"))
    for error in jsonschema.Draft7Validator(schema).iter_errors(config):
        path = [str(part) for part in error.absolute_path]
        if path[:1] == [_TYPES] and len(path) > 1:
            del path[0]  # a worker type goes by its own name
        place = ".".join(path)
        # What is wrong can be a whole section of the file.
        said = error.message if len(error.message) < 200 else f"it fails Ray's {error.validator!r}"
        yield path[0] if path else "", f"{place}: {said}" if place else said
