"""Constants for both ends of every connection: the version, metadata keys and channel options."""

from typing import Final

PROTOCOL_VERSION: Final = 3
"""Increased if an old peer could misunderstand a new one (see iris.proto). Version 2: a job specifies its directory,
Python and packages (`Runtime`), and whether it is exclusive; an older peer would run it elsewhere, with other packages,
or twice. Version 3: logs are sent as stored records; an older client would show empty logs.
"""

OLDEST_VERSION: Final = 3
"""The oldest supported version."""


def version_mismatch(caller: str, theirs: int, ours: int) -> str:
    """Return why a caller and this controller are incompatible, and which one to upgrade; empty if they are compatible.

    Consecutive versions are compatible, so that a cluster can be upgraded host by host.

    Args:
        caller: The caller's name for the message, e.g. "worker w1".
        theirs: The caller's version.
        ours: This controller's version.
    """
    if abs(theirs - ours) <= 1 and theirs >= OLDEST_VERSION:
        return ""
    behind, needed = (caller, ours - 1) if theirs < ours else ("the controller", theirs - 1)
    return (
        f"{caller} speaks protocol version {theirs}, this controller {ours}: upgrade {behind} to a release that speaks "
        f"{max(needed, OLDEST_VERSION)} or later (neighbouring versions work together)"
    )


MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of one message to the controller: twice the largest valid one (blobs are sent in chunks)."""
MAX_BLOB_CHUNK_BYTES: Final = 1024 * 1024
KEEPALIVE_MS: Final = 20_000

AUTHORIZATION_KEY: Final = "authorization"
"""Metadata key of the bearer token: `authorization: Bearer <token>`."""

ATTEMPT_ID_KEY: Final = "iris-attempt-id"
"""Metadata key for the attempt of a task that waits for its children and lends its CPUs meanwhile."""

PROTOCOL_VERSION_KEY: Final = "iris-protocol-version"
"""Metadata key of the caller's PROTOCOL_VERSION; without it, this release's version is assumed."""

SOCKET_NAME: Final = "controller.sock"
"""The socket in the controller's state directory, for processes of the same user and machine."""

ChannelOption = tuple[str, int | str]

CHANNEL_OPTIONS: Final[tuple[ChannelOption, ...]] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A loopback or cluster address never goes through the proxy of the user's shell.
    ("grpc.enable_http_proxy", 0),
)
"""Options of every client channel."""

SERVER_OPTIONS: Final[tuple[ChannelOption, ...]] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Clients ping at KEEPALIVE_MS; the default minimum (5 min) would answer with GOAWAY "too_many_pings".
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 4),
    # What a call may send before anything of it is asked for. With the probe that grows to megabytes for each call, be
    # it of a stranger, as soon as one of a connection sends much; half a MiB is enough for 16 MB/s at 30 ms.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 512 * 1024),
    # Two controllers on one port would share its connections; the second must fail to bind instead.
    ("grpc.so_reuseport", 0),
)
"""Options of the controller's server."""


def call_metadata(
    token: str, attempt_id: str | None = None, protocol_version: int = PROTOCOL_VERSION
) -> tuple[tuple[str, str], ...]:
    """Return the metadata of every call of a client or worker.

    Args:
        token: The caller's token.
        attempt_id: The calling attempt; None for none.
        protocol_version: The caller's version.
    """
    pairs = [(AUTHORIZATION_KEY, f"Bearer {token}"), (PROTOCOL_VERSION_KEY, str(protocol_version))]
    if attempt_id:
        pairs.append((ATTEMPT_ID_KEY, attempt_id))
    return tuple(pairs)
