"""What Google answers when it refuses, in its own words, gathered from what its users have published.

Nobody seems to have published RATE, FORBIDDEN, INTERNAL, CANCELLED and VM_PREEMPTED_WHILE_CREATED: those have the form
of other services' answers.

`{project}`, `{zone}`, `{region}`, `{name}` and `{type}` stand for what the request names.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

_EID: Final = "[EID: 0x9f48947a7d57c8d]"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer other than 200.

    Args:
        status: The status of HTTP.
        text: The message.
        google: Google's name of the status; empty where the answer has none.
        reason: The `reason` of Compute Engine's errors, and of an ErrorInfo.
        details: The details.
    """

    status: int
    text: str
    google: str = ""
    reason: str = ""
    details: tuple[dict[str, Any], ...] = ()

    def body(self) -> dict[str, Any]:
        """Return the body."""
        error: dict[str, Any] = {"code": self.status, "message": self.text}
        if self.reason and self.reason[0].islower():  # of Compute Engine
            error["errors"] = [{"message": self.text, "domain": "global", "reason": self.reason}]
        if self.google:
            error["status"] = self.google
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}

    def filled(self, **names: object) -> "Refusal":
        """Return it with the names of a request."""
        return replace(self, text=fill(self.text, **names), details=_fill_all(self.details, names))


@dataclass(frozen=True, slots=True)
class Failure:
    """What an operation ends in.

    Args:
        code: A number at the TPU API, a word at Compute Engine's.
        text: The message.
        status: The `httpErrorStatusCode` of Compute Engine's operation.
        message: Its `httpErrorMessage`.
    """

    code: int | str
    text: str
    status: int = 0
    message: str = ""

    def filled(self, **names: object) -> "Failure":
        """Return it with the names of a request."""
        return replace(self, text=fill(self.text, **names))


def fill(text: str, **names: object) -> str:
    """Return a text with the names of a request in place of `{project}`, `{zone}` and others."""
    for key, value in names.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def _fill_all(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return fill(value, **names)
    if isinstance(value, dict):
        return {key: _fill_all(inner, names) for key, inner in value.items()}
    return type(value)(_fill_all(inner, names) for inner in value)


def _info(service: str, reason: str, **metadata: str) -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc.ErrorInfo"
    return {"@type": kind, "reason": reason, "domain": "googleapis.com", "metadata": {"service": service, **metadata}}


# What ends an operation of the TPU API. A stock-out of a node is a 200, and its operation ends so.
STOCK_OUT: Final = Failure(
    8,
    'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are offered '
    f"(see https://cloud.google.com/tpu/docs/regions) {_EID}",
)
NO_RESERVATION: Final = Failure(
    9, f"Insufficient reserved capacity. Contact customer support to increase your reservation. {_EID}"
)
NO_RESERVATION_AS_STOCK_OUT: Final = replace(NO_RESERVATION, code=8)
PREEMPTED_WHILE_CREATED: Final = Failure(
    3, f"Cloud TPU received a bad request. update is not supported while in state PREEMPTED {_EID}"
)
CANCELLED: Final = Failure(1, "The operation was cancelled.")
INTERNAL: Final = Failure(13, f"an internal error has occurred {_EID}")

# What ends an operation of Compute Engine.
VM_STOCK_OUT: Final = Failure(
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the request.  "
    "Try a different zone, or try again later.",
    503,
    "SERVICE UNAVAILABLE",
)
VM_STOCK_OUT_WITH_DETAILS: Final = Failure(
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the request.  "
    "'(resource type:compute)'.",
    503,
    "SERVICE UNAVAILABLE",
)
VM_QUOTA_EXCEEDED: Final = Failure(
    "QUOTA_EXCEEDED", "Quota 'CPUS' exceeded.  Limit: 24.0 in region {region}.", 403, "FORBIDDEN"
)
VM_PREEMPTED_WHILE_CREATED: Final = Failure(
    "UNSUPPORTED_OPERATION", "Instance '{name}' creation failed: the instance was preempted.", 400, "BAD REQUEST"
)

# What refuses a request.
QUOTA: Final = Refusal(
    429,
    "Quota limit 'TPUV5sLitepodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 16 in zone {zone}.",
    "RESOURCE_EXHAUSTED",
    details=(
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [
                {
                    "subject": "project:1037372895180",
                    "description": "Quota 'TPUV5sLitepodPerProjectPerZoneForTPUAPI' exhausted. Limit 16 in zone {zone}",
                }
            ],
        },
    ),
)
RATE: Final = Refusal(
    429,
    "Quota exceeded for quota metric 'Create requests' and limit 'Create requests per minute' of service "
    "'tpu.googleapis.com' for consumer 'project_number:1037372895180'.",
    "RESOURCE_EXHAUSTED",
    details=(_info("tpu.googleapis.com", "RATE_LIMIT_EXCEEDED", consumer="projects/1037372895180"),),
)
UNAUTHENTICATED: Final = Refusal(
    401,
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
    "authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
    "UNAUTHENTICATED",
)
FORBIDDEN: Final = Refusal(
    403,
    "Permission 'tpu.nodes.create' denied on 'projects/{project}/locations/{zone}/nodes/{name}' (or it may not exist).",
    "PERMISSION_DENIED",
    details=(_info("tpu.googleapis.com", "IAM_PERMISSION_DENIED", permission="tpu.nodes.create"),),
)
NOT_ENABLED: Final = Refusal(
    403,
    "Cloud TPU API has not been used in project {project} before or it is disabled. Enable it by visiting "
    "https://console.developers.google.com/apis/api/tpu.googleapis.com/overview?project={project} then retry. If you "
    "enabled this API recently, wait a few minutes for the action to propagate to our systems and retry.",
    "PERMISSION_DENIED",
    details=(_info("tpu.googleapis.com", "SERVICE_DISABLED", consumer="projects/{project}"),),
)
NOT_OFFERED_TO_YOU: Final = Refusal(
    403,
    'User does not have permission to submit requests for accelerator type "{type}" in location {zone}',
    "PERMISSION_DENIED",
)
NO_LOCATION: Final = Refusal(
    403,
    "Location {zone} is not found or access is unauthorized.",
    "PERMISSION_DENIED",
    details=(
        _info("tpu.googleapis.com", "LOCATION_POLICY_VIOLATED", consumer="projects/{project}", location="{zone}"),
    ),
)
NOT_IN_ZONE: Final = Refusal(
    400,
    'Cloud TPU received a bad request. The requested accelerator configuration for accelerator type, "{type}", could '
    'not be found in the zonal accelerator configurations for "{zone}".; the accelerator {type} was not found in zone '
    f"{{zone}} {_EID}",
    "INVALID_ARGUMENT",
)
BAD_REQUEST: Final = Refusal(400, "Cloud TPU received a bad request. {name} " + _EID, "INVALID_ARGUMENT")
NO_GUEST_ATTRIBUTES: Final = Refusal(
    400,
    f'Cloud TPU received an invalid argument. The "GuestAttributes" value "{{name}}" was not found. {_EID}',
    "INVALID_ARGUMENT",
)
EXISTS: Final = Refusal(409, "Resource '{name}' already exists", "ALREADY_EXISTS")
NOT_FOUND: Final = Refusal(404, "Resource '{name}' was not found", "NOT_FOUND")
UNAVAILABLE: Final = Refusal(503, "The service is currently unavailable.", "UNAVAILABLE")
BROKEN: Final = Refusal(500, "Internal error encountered.", "INTERNAL")

VM_QUOTA: Final = Refusal(403, "Quota 'C4A_CPUS' exceeded.  Limit: 8.0 in region {region}.", reason="quotaExceeded")
VM_RATE: Final = Refusal(
    403,
    "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com' for "
    "consumer 'project_number:1037372895180'.",
    reason="rateLimitExceeded",
)
VM_RATE_429: Final = replace(VM_RATE, status=429, google="RESOURCE_EXHAUSTED")
VM_FORBIDDEN: Final = Refusal(
    403,
    "Required 'compute.instances.create' permission for 'projects/{project}/zones/{zone}/instances/{name}'",
    reason="forbidden",
)
VM_NOT_ENABLED: Final = Refusal(
    403,
    "Compute Engine API has not been used in project {project} before or it is disabled. Enable it by visiting "
    "https://console.developers.google.com/apis/api/compute.googleapis.com/overview?project={project} then retry. If "
    "you enabled this API recently, wait a few minutes for the action to propagate to our systems and retry.",
    reason="accessNotConfigured",
)
VM_INVALID: Final = Refusal(400, "Invalid value for field '{name}': '{type}'.", reason="invalid")
VM_EXISTS: Final = Refusal(409, "The resource '{name}' already exists", reason="alreadyExists")
VM_NOT_FOUND: Final = Refusal(404, "The resource '{name}' was not found", reason="notFound")
