"""Opens channels to a controller: encrypted if the token pins an authority, otherwise only on loopback or on
request.
"""

import logging
import os
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from iris.rpc.controller_address import ControllerAddress
from iris.rpc.protocol import ChannelOption
from iris.tls.certificates import SERVER_NAME
from iris.tls.trust import default_ca_dir, is_loopback, trusted_ca
from rigging.errors import Denied

logger = logging.getLogger(__name__)

CA_VARIABLE: Final = "IRIS_CA_SHA256"
"""The variable with the authority that the tokens of a task's cluster pin."""
INSECURE_VARIABLE: Final = "IRIS_INSECURE"
"""The variable that with "1" allows unencrypted tokens beyond loopback."""

_NAMED: Final[ChannelOption] = ("grpc.ssl_target_name_override", SERVER_NAME)

Options = tuple[ChannelOption, ...]


def open_channel(place: ControllerAddress, options: Options) -> grpc.Channel:
    """Open a channel to a controller; the handshake happens with the first call.

    Args:
        place: The controller and the token for it.
        options: Channel options.

    Raises:
        Denied: The token would be sent unencrypted beyond loopback, or the controller has another authority than the
            token pins.
        Unavailable: The controller's authority is not known yet, and the controller cannot be reached.
    """
    credentials = _credentials(place, None)
    if credentials is None:
        return grpc.insecure_channel(place.address, options=options)
    return grpc.secure_channel(place.address, credentials, options=(*options, _NAMED))


def open_aio_channel(place: ControllerAddress, options: Options, ca_dir: Path | None = None) -> grpc.aio.Channel:
    """Open a channel for asyncio, like `open_channel`.

    Args:
        place: The controller and the token for it.
        options: Channel options.
        ca_dir: The directory of stored authorities; None for the user's cache.
    """
    credentials = _credentials(place, ca_dir)
    if credentials is None:
        return grpc.aio.insecure_channel(place.address, options=options)
    return grpc.aio.secure_channel(place.address, credentials, options=(*options, _NAMED))


def _credentials(place: ControllerAddress, ca_dir: Path | None) -> grpc.ChannelCredentials | None:
    if place.ca_sha256:
        authority = trusted_ca(place.address, place.ca_sha256, ca_dir or default_ca_dir(os.environ))
        return grpc.ssl_channel_credentials(authority)
    if place.token and not place.insecure and not is_loopback(place.address):
        raise Denied(
            f"the token is not sent to {place.address}: it pins no CA, so the connection would not be encrypted. Use a "
            "token of a controller with TLS (`iris user token create`, `iris cluster token create`), or --insecure "
            f"({INSECURE_VARIABLE}=1) on a network that you trust"
        )
    if place.insecure and not is_loopback(place.address):
        logger.warning(
            "the connection to the controller at %s is not encrypted: anyone who listens to it can act as you",
            place.address,
        )
    return None
