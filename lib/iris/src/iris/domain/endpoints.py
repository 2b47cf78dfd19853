"""Endpoints: addresses of live attempts under names, and the rules for those names.

The full name is `{namespace}/{leaf}`. The namespace is the registering job or one of its ancestors. Several attempts
may share one name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from iris.domain.ids import AttemptId, EndpointId, JobId, parent_of, validate_job_id
from rigging.errors import InvalidRequest

CHECKPOINT: Final = "iris.checkpoint"
"""The name under which an attempt reports that it has a checkpoint. Its time counts, its address does not."""

_LEAF: Final = re.compile(r"[A-Za-z0-9_.@+=-]{1,128}")
_MAX_ADDRESS: Final = 512
_MAX_METADATA_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class RegisteredEndpoint:
    """An attempt's address under a name.

    Args:
        name: The full name, e.g. "/ann/train/counter".
        address: "host:port", or any other text.
        metadata: Further data for callers.
        registered_at_ms: Time of the registration, Unix ms.
    """

    name: str
    attempt_id: AttemptId
    address: str
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    registered_at_ms: int = 0

    @property
    def endpoint_id(self) -> EndpointId:
        """The endpoint's id. An attempt has one endpoint per name."""
        return endpoint_id(self.name, self.attempt_id)


def endpoint_id(name: str, attempt: AttemptId) -> EndpointId:
    """Return the id of the endpoint of `attempt` under the full name `name`."""
    return EndpointId(f"{name} {attempt}")


def name_of(endpoint: EndpointId) -> str:
    """Return the full name in an endpoint id."""
    return endpoint.partition(" ")[0]


def namespace_of(name: str) -> JobId:
    """Return the job whose namespace contains a full name."""
    return JobId(name.rpartition("/")[0])


def full_names(job_id: JobId, name: str) -> tuple[str, ...]:
    """Return the full names to try for `name` inside a job: in its own namespace, then in its ancestors'.

    An absolute name ("/user/job/leaf") is returned unchanged.

    Raises:
        InvalidRequest: The name is invalid.
    """
    if name.startswith("/"):
        validate_full_name(name)
        return (name,)
    _validate_leaf(name)
    names = []
    at: JobId | None = job_id
    while at is not None:
        names.append(f"{at}/{name}")
        at = parent_of(at)
    return tuple(names)


def validate_full_name(name: str) -> None:
    """Raise InvalidRequest unless `name` has the form /user/job[/child...]/leaf."""
    namespace, _, leaf = name.rpartition("/")
    try:
        validate_job_id(namespace)
        _validate_leaf(leaf)
    except InvalidRequest as error:
        raise InvalidRequest(f"endpoint name {name!r}: the form is /user/job[/child...]/name: {error}") from None


def validate_endpoint(endpoint: RegisteredEndpoint) -> None:
    """Raise InvalidRequest for an invalid name, address or metadata."""
    validate_full_name(endpoint.name)
    if not endpoint.address or len(endpoint.address) > _MAX_ADDRESS:
        raise InvalidRequest(f"endpoint {endpoint.name}: the address must have 1 to {_MAX_ADDRESS} characters")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in endpoint.metadata.items())
    if size > _MAX_METADATA_BYTES:
        raise InvalidRequest(
            f"endpoint {endpoint.name}: {size} bytes of metadata; at most {_MAX_METADATA_BYTES} are kept"
        )


def _validate_leaf(name: str) -> None:
    if _LEAF.fullmatch(name) is None or name in (".", ".."):
        raise InvalidRequest(f"{name!r} cannot name an endpoint; allowed are 1 to 128 of A-Z a-z 0-9 _ . @ + = -")
