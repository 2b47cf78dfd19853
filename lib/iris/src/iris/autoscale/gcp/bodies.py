"""Returns the bodies of requests that make machines at Google. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from iris.autoscale.rules import ControllerHost
from iris.domain.scale_groups import CapacityType, GcpTemplate, ScaleGroup
from rigging.topology import get_tpu_generation

_SCOPES: Final = ["https://www.googleapis.com/auth/cloud-platform"]
_IMAGE: Final = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
_CONTROLLER_MACHINE: Final = "e2-standard-4"
_CONTROLLER_DISK_GB: Final = 50


def node_body(group: ScaleGroup, template: GcpTemplate, labels: Mapping[str, str], script: str) -> dict[str, Any]:
    """Return the body of a TPU node.

    Args:
        group: The scale group.
        template: Its template.
        labels: Labels of the cluster.
        script: The startup script.
    """
    kind = group.host.accelerator.variant if group.host.accelerator else ""
    body: dict[str, Any] = {
        "acceleratorType": kind,
        "runtimeVersion": template.runtime_version or get_tpu_generation(kind).runtime_version,
        # An address of its own, so that a host reaches package indexes without a NAT gateway.
        "networkConfig": _given(network=template.network, subnetwork=template.subnetwork, enableExternalIps=True),
        "serviceAccount": _given(email=template.service_account, scope=_SCOPES),
        "labels": {**dict(template.labels), **labels},
        "metadata": _metadata(script),
    }
    if group.capacity_type is CapacityType.SPOT:
        body["schedulingConfig"] = {"spot": True}
    elif group.capacity_type is CapacityType.RESERVED:
        body["schedulingConfig"] = {"reserved": True}
    return body | _given(tags=list(template.tags))


def queued_resource_body(name: str, node: Mapping[str, Any], parent: str, reservation: str) -> dict[str, Any]:
    """Return the body of a queued resource for one node of the same name. It has no labels but those of its node.

    Args:
        name: The slice's name.
        node: The body of the node.
        parent: "projects/PROJECT/locations/ZONE".
        reservation: A reservation's name or path; empty for any.
    """
    spec = {"parent": parent, "nodeId": name, "node": dict(node)}
    return {
        "tpu": {"nodeSpec": [spec]},
        "guaranteed": {},
        **_given(reservationName=_path(f"{parent}/reservations", reservation)),
    }


def instance_body(
    name: str, group: ScaleGroup, template: GcpTemplate, labels: Mapping[str, str], script: str
) -> dict[str, Any]:
    """Return the body of a virtual machine for a scale group.

    Args:
        name: The slice's name.
        group: The scale group.
        template: Its template.
        labels: Labels of the cluster.
        script: The startup script.
    """
    device = group.host.accelerator
    body = _instance(
        name,
        group.zone,
        template.machine_type,
        disk={
            "sourceImage": template.image or _IMAGE,
            **_given(diskSizeGb=str(template.disk_size_gb or "")),
            **_given(diskType=template.disk_type and f"zones/{group.zone}/diskTypes/{template.disk_type}"),
        },
        network=_given(
            network=_path("global/networks", template.network),
            subnetwork=_path(f"regions/{group.zone.rpartition('-')[0]}/subnetworks", template.subnetwork),
        ),
        service_account=template.service_account,
        labels={**dict(template.labels), **labels},
        script=script,
    )
    if device is not None and template.machine_type.startswith("n1-"):  # others have their GPUs built in
        kind = f"zones/{group.zone}/acceleratorTypes/nvidia-tesla-{device.variant.lower()}"
        body["guestAccelerators"] = [{"acceleratorType": kind, "acceleratorCount": device.count}]
    # Machines with GPUs cannot be migrated.
    scheduling: dict[str, Any] = {"onHostMaintenance": "TERMINATE"} if device is not None else {}
    if group.capacity_type is CapacityType.SPOT:
        # Deleted, not stopped: a stopped machine keeps a disk that costs money.
        scheduling = {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
    elif group.capacity_type is CapacityType.RESERVED:
        affinity = {"key": "compute.googleapis.com/reservation-name", "values": [template.reservation]}
        body["reservationAffinity"] = (
            {"consumeReservationType": "SPECIFIC_RESERVATION", **affinity}
            if template.reservation
            else {"consumeReservationType": "ANY_RESERVATION"}
        )
    tags = {"items": list(template.tags)} if template.tags else {}
    return body | _given(scheduling=scheduling, tags=tags)


def controller_body(name: str, host: ControllerHost, labels: Mapping[str, str], script: str) -> dict[str, Any]:
    """Return the body of the controller's virtual machine.

    Args:
        name: Its name.
        host: Its settings.
        labels: Labels of the cluster.
        script: The startup script.
    """
    return _instance(
        name,
        host.zone,
        host.machine_type or _CONTROLLER_MACHINE,
        disk={"sourceImage": host.image or _IMAGE, "diskSizeGb": str(host.disk_size_gb or _CONTROLLER_DISK_GB)},
        network={},
        service_account=host.service_account,
        labels=labels,
        script=script,
    )


def _instance(
    name: str,
    zone: str,
    machine_type: str,
    *,
    disk: Mapping[str, Any],
    network: Mapping[str, Any],
    service_account: str,
    labels: Mapping[str, str],
    script: str,
) -> dict[str, Any]:
    access = {"type": "ONE_TO_ONE_NAT", "name": "External NAT"}
    return {
        "name": name,
        "machineType": f"zones/{zone}/machineTypes/{machine_type}",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": dict(disk)}],
        "networkInterfaces": [{**(network or {"network": "global/networks/default"}), "accessConfigs": [access]}],
        "serviceAccounts": [{"email": service_account or "default", "scopes": _SCOPES}],
        "labels": dict(labels),
        "metadata": {"items": metadata_items(script)},
    }


def metadata_items(script: str) -> list[dict[str, str]]:
    """Return the metadata of a virtual machine with a startup script."""
    return [{"key": key, "value": value} for key, value in _metadata(script).items()]


def _metadata(script: str) -> dict[str, str]:
    return {"startup-script": script, "enable-guest-attributes": "TRUE"}


def _path(parent: str, name: str) -> str:
    return f"{parent}/{name}" if name and "/" not in name else name


def _given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value}
