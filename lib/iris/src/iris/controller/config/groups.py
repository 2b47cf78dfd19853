"""The scale groups of a cluster file: one for each zone, with how its slices are made."""

from dataclasses import replace

from iris.controller.config.kinds import Kind
from iris.controller.config.sections import Section
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import CapacityType, GcpTemplate, ManualTemplate, ScaleGroup
from iris.domain.usage import Price
from rigging.errors import InvalidRequest
from rigging.topology import get_tpu_topology


def scale_groups(root: Section) -> tuple[ScaleGroup, ...]:
    """Return the scale groups of a file. A group with `zones` is one for each zone, named NAME-ZONE."""
    found: list[ScaleGroup] = []
    hosts: dict[str, str] = {}
    at_google = root.section("platform").has("gcp")
    for section in root.sections("scale_groups"):
        group = _scale_group(section)
        template = _template(section, group, at_google)
        if isinstance(template, ManualTemplate):
            for host in template.hosts:
                if hosts.setdefault(host, section.name) != section.name:
                    section.section("slice_template").section("manual").refuse("hosts", "hosts of no other group")
            if not section.has("max_slices"):
                group = replace(group, max_slices=max(len(template.hosts) // group.hosts_per_slice, 1))
            if section.has("zones"):
                section.refuse("zones", "left out, as the hosts are given")
        made = _by_zone(section, replace(group, template=template))
        if group.name and {other.name for other in found} & {other.name for other in made}:
            section.refuse("name", "a name that no other scale group has")
        found += made
    return tuple(found)


def price_of(group: ScaleGroup) -> Price:
    """Return a group's price for the ledger, from that of a slice."""
    device = group.host.accelerator
    if device is not None:
        return Price(chip_hour=group.hourly_price / (device.count * group.hosts_per_slice))
    return Price(core_hour=group.hourly_price * 1000 / (group.host.cpu_millis * group.hosts_per_slice))


def _scale_group(section: Section) -> ScaleGroup:
    device = _device(section.section("accelerator")) if section.has("accelerator") else None
    hosts = _hosts(section, device)
    least = section.whole("min_slices")
    most = section.whole("max_slices") if section.has("max_slices") else max(least + section.whole("buffer_slices"), 1)
    if most < least:
        section.refuse("max_slices", "min_slices or more")
    capacity = _capacity(section)
    return ScaleGroup(
        name=section.text("name"),
        host=Resources(round(section.number("cpu") * 1000), section.whole("memory"), section.whole("disk"), device),
        hosts_per_slice=hosts,
        min_slices=least,
        max_slices=most,
        region=section.text("region") or section.text("zone").rpartition("-")[0],
        zone=section.text("zone"),
        preemptible=capacity is CapacityType.SPOT,
        attributes=section.texts("attributes"),
        priority=section.whole("priority"),
        buffer_slices=section.whole("buffer_slices"),
        capacity_type=capacity,
        quota_pool=section.text("quota_pool"),
        allocation_tier=section.whole("allocation_tier"),
        hourly_price=section.number("hourly_price"),
        environment=section.section("worker").texts("env"),
    )


def _hosts(section: Section, device: Device | None) -> int:
    hosts = 1
    given = section.whole("hosts_per_slice")
    if device is not None and device.kind == "tpu":
        hosts = get_tpu_topology(device.variant).vm_count
        if given and given != hosts:
            section.refuse("hosts_per_slice", f"{hosts}, as a slice of this variant has; or leave it out")
    return given or hosts


def _capacity(section: Section) -> CapacityType:
    """Return the capacity type; `preemptible: true` alone means spot."""
    given = section.text("capacity_type") if section.has("capacity_type") else ""
    preemptible = section.flag("preemptible")
    if given and section.has("preemptible") and preemptible != (given == CapacityType.SPOT):
        section.refuse("preemptible", "left out, as capacity_type says it")
    return CapacityType(given) if given else CapacityType.SPOT if preemptible else CapacityType.ON_DEMAND


def _device(section: Section) -> Device | None:
    kind, variant = section.text("type"), section.text("variant")
    if not section.has("type"):
        section.refuse("type", section.keys["type"].must_be, "")
    if not variant or not kind:
        return None
    count = section.whole("count")
    if kind == "gpu":
        return Device("gpu", variant, count or 1)
    try:
        chips = get_tpu_topology(variant).chips_per_vm
    except InvalidRequest:
        section.refuse("variant", "a TPU type such as v5p-64")
        return None
    if count > chips:
        section.refuse("count", f"a whole number from 1 to {chips}")
    return Device("tpu", variant, count or chips)


def _template(section: Section, group: ScaleGroup, at_google: bool) -> GcpTemplate | ManualTemplate | None:
    """Return how a group's slices are made: as its template says, else at the platform's Google, else by nobody."""
    template = section.section("slice_template")
    if template.has("manual"):
        if template.has("gcp"):
            template.note("manual", "a group is made at Google or of hosts by ssh, not both; leave one out")
        return _manual(section, template.section("manual"), group)
    if template.has("gcp") or at_google:
        return _gcp(section, template.section("gcp"), group, at_google)
    return None


def _manual(group_section: Section, section: Section, group: ScaleGroup) -> ManualTemplate:
    hosts, size = section.names("hosts"), group.hosts_per_slice
    if len(set(hosts)) < len(hosts):
        section.refuse("hosts", "a list without duplicates")
    elif len(hosts) % size:
        section.refuse("hosts", f"a multiple of {size} hosts (hosts_per_slice)")
    elif group.max_slices * size > len(hosts) > 0:
        group_section.refuse("max_slices", f"{len(hosts) // size} or less, as there are {len(hosts)} hosts")
    return ManualTemplate(hosts, section.text("ssh_user"), section.text("ssh_key_file"))


def _gcp(group_section: Section, section: Section, group: ScaleGroup, at_google: bool) -> GcpTemplate:
    made = GcpTemplate(
        is_tpu=group_section.section("accelerator").text("type") == "tpu",
        disk_size_gb=section.whole("boot_disk_size_gb"),
        tags=section.names("tags"),
        labels=section.texts("labels"),
        **{key: section.text(key) for key, entry in section.keys.items() if entry.kind is Kind.TEXT},
    )
    if not made.project_id and not at_google:
        section.refuse("project_id", "a project; or give platform.gcp.project_id")
    if not group.zone and not group_section.has("zones"):
        group_section.refuse("zone", "the zone in which Google makes its slices")
    if not made.is_tpu and not made.machine_type:
        section.refuse("machine_type", "a machine type such as n2-standard-8")
    if made.reservation and group.capacity_type is not CapacityType.RESERVED:
        section.refuse("reservation", "left out, unless capacity_type is 'reserved'")
    return made


def _by_zone(section: Section, group: ScaleGroup) -> list[ScaleGroup]:
    zones = section.names("zones")
    if not zones:
        return [group]
    for key in ("zone", "region"):
        if section.has(key):
            section.refuse(key, "left out, as zones are given")
    if len(set(zones)) < len(zones):
        section.refuse("zones", "a list without duplicates")
    return [replace(group, name=f"{group.name}-{zone}", zone=zone, region=zone.rpartition("-")[0]) for zone in zones]
