"""Registers a new worker with the controller, once, with a join token."""

import logging
import time
from typing import Final

import grpc

from iris.rpc.auth import join_bearer
from iris.rpc.channels import open_channel
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import access_pb2 as pb
from iris.rpc.generated.access_pb2_grpc import AccessServiceStub
from iris.rpc.protocol import CHANNEL_OPTIONS, call_metadata
from iris.rpc.status_map import from_rpc_error
from iris.tls.pins import JoinTokenText
from iris.tls.trust import certificate_trouble
from iris.worker.connection.credential import Credential
from rigging.errors import DeadlineExceeded, Denied, Unavailable
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

_CALL_S: Final = 15.0


def join_cluster(
    controller: str,
    token: JoinTokenText,
    credential: Credential,
    *,
    insecure: bool,
) -> str:
    """Register a credential with the controller; retry until the controller answers.

    The join token is sent only after the controller's certificate is verified against the pinned authority.

    Args:
        controller: "host:port".
        token: The join token.
        credential: The worker's new credential; only its digest is sent.
        insecure: Allow sending the token unencrypted beyond loopback.

    Returns:
        The controller's release.

    Raises:
        Denied: The token is not valid, or belongs to another controller.
        Conflict: Another host has joined with that name.
    """
    place = ControllerAddress(
        controller, join_bearer(token.token_id, token.secret), ca_sha256=token.ca_sha256, insecure=insecure
    )
    backoff = ExponentialBackoff(initial=0.2, maximum=10.0, factor=1.6, jitter=0.2)
    told = ""
    while True:
        try:
            return _join_once(place, credential)
        except (Unavailable, DeadlineExceeded) as error:
            if str(error) != told:
                told = str(error)
                logger.warning("cannot join yet: %s", told)
        time.sleep(backoff.next_interval())


def _join_once(place: ControllerAddress, credential: Credential) -> str:
    request = pb.JoinRequest(worker_id=credential.worker_id, credential_sha256=credential.sha256)
    with open_channel(place, CHANNEL_OPTIONS) as channel:
        stub = AccessServiceStub(channel)
        try:
            reply: pb.JoinResponse = stub.Join(request, timeout=_CALL_S, metadata=call_metadata(place.token))
        except grpc.RpcError as error:
            if trouble := certificate_trouble(str(error.details()), time.time()):
                raise Denied(f"the certificate of the controller at {place.address} {trouble}") from None
            raise from_rpc_error(error) from None
    return reply.version
