"""Runs a controller other than the user's local cluster on this machine, and restores its state."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from iris.autoscale.rules import GOOGLE_ENDPOINT
from iris.controller.app import Address, serve
from iris.controller.config.controller_config import ControllerConfig
from iris.controller.config.options import Given, controller_config, insecure_in
from iris.local.controller import local_config
from iris.local.fresh_state import left_as_found
from iris.local.interrupts import stop_on_signals
from iris.local.machines import Machines
from iris.local.start import LocalCluster
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.store.replicate.remote import RemoteState
from iris.store.replicate.rewind import rewind
from iris.tls.certificates import AUTHORITY_FILES, DIRECTORY_NAME, ServerIdentity, ensure_certificates, write_authority
from iris.tls.pins import PinnedToken
from iris.tls.trust import is_loopback
from iris.user_name import default_user
from iris.worker.host.environment import hide_own_environment
from rigging.errors import InvalidRequest, NotFound
from rigging.log_setup import configure_logging

logger = logging.getLogger(__name__)

TOKEN_NAME = "user-token"


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of `restore_state`.

    Args:
        state_dir: The state directory.
        remote_state_dir: The source of the state.
        sequence: The number of the last commit.
        moved_to: The new path of the previous content of `state_dir`.
    """

    state_dir: Path
    remote_state_dir: str
    sequence: int
    moved_to: Path | None


def serve_standalone(
    config_path: Path | None,
    *,
    state_dir: Path | None,
    port: int | None,
    remote_state_dir: str | None,
    durability: str | None,
    host: str | None = None,
    insecure: bool = False,
    partition_patience_s: int | None = None,
    on_ready: Callable[[str, Path], None],
) -> None:
    """Run a controller until SIGTERM or SIGINT. A setting of None uses the config file's value.

    Args:
        config_path: The config file.
        state_dir: The state directory.
        port: The port to listen on.
        remote_state_dir: The remote state directory.
        durability: The durability of an acknowledged submission: "local" or "remote".
        host: Address to listen on; None for the config file's, else loopback. Connections beyond loopback are
            encrypted.
        insecure: Do not encrypt connections beyond loopback.
        partition_patience_s: As in `ControllerConfig`.
        on_ready: Called with the address and the file with this user's token.

    Raises:
        InvalidRequest: The settings are invalid.
        Conflict: Another controller uses the state, here or remotely.
    """
    given = Given(
        state_dir,
        port,
        remote_state_dir=remote_state_dir,
        durability=durability,
        host=host,
        partition_patience_s=partition_patience_s,
    )
    config = controller_config(config_path, given)
    machines = Machines(config, is_google=not os.environ.get(GOOGLE_ENDPOINT))
    served: list[str] = []
    with left_as_found(config.state_dir, lambda: bool(served)):
        _make(config.state_dir)
        configure_logging(logging.INFO)
        if not is_loopback(config.host):
            config = _with_tls(config, insecure or insecure_in(config_path))
        hide_own_environment(storage=True)

        def tell(address: Address) -> None:
            machines.on_address(address)
            served.append(str(address))
            on_ready(str(address), _keep_token(config))

        asyncio.run(_serve_until_signalled(config, tell, machines))


async def _serve_until_signalled(config: ControllerConfig, tell: Callable[[Address], None], machines: Machines) -> None:
    stop = asyncio.Event()
    still = f"workers and their tasks continue and wait for a controller; its state is in {config.state_dir}"
    if config.remote_state_dir:
        still += f", the latest changes of which may be missing in {config.remote_state_dir} yet"
    stop_on_signals(asyncio.get_running_loop(), stop, lambda: still)
    if await machines.prepare():
        await serve(config, tell, stop, autoscaler=machines.autoscaler)
    else:
        await serve(config, tell, stop)


def _keep_token(config: ControllerConfig) -> Path:
    """Write the admin token of this process's user to a file; return the file."""
    secret = load_or_create_secret(config.state_dir / "secret")
    token = PinnedToken(make_token(secret, PrincipalKind.ADMIN, default_user()), config.ca_sha256).text
    place = config.state_dir / TOKEN_NAME
    # Other users can never read it, also where the directory was there before and is open to others.
    made = place.with_name(f".{TOKEN_NAME}")
    made.unlink(missing_ok=True)
    made.touch(mode=0o600)
    made.write_text(token)
    made.replace(place)
    return place


def _with_tls(config: ControllerConfig, insecure: bool) -> ControllerConfig:
    if insecure:
        logger.warning(
            "serving on %s without encryption (--insecure): anyone who can listen on that network can act as its users",
            config.host,
        )
        return config
    if config.remote_state_dir:
        # What tokens pin outlives the disk, like the state.
        write_authority(config.state_dir, RemoteState(config.remote_state_dir).get_authority(AUTHORITY_FILES))
    identity = ensure_certificates(config.state_dir)
    logger.info("the CA is %s, the server's certificate is good until %s", identity.ca_sha256, identity.expires_at)
    return replace(config, tls=identity)


def controller_certificates(
    config_path: Path | None, *, state_dir: Path | None, make: bool, renew: bool
) -> tuple[Path, ServerIdentity]:
    """Return the directory of a controller's certificates, and the certificates. With a CA, create missing certificates
    and renew expiring ones.

    Args:
        config_path: The config file.
        state_dir: The controller's state directory; None for the config file's.
        make: Create a CA if there is none.
        renew: Create a new server certificate even if there is one.

    Raises:
        NotFound: There is no CA.
    """
    directory = controller_config(config_path, Given(state_dir)).state_dir
    place = directory / DIRECTORY_NAME
    if make:
        _make(directory)
    elif not (place / "ca.pem").exists():
        # Tokens of another CA are refused: one that comes of a mistyped name would be found out much later.
        raise NotFound(
            f"there is no CA in {place}: is {directory} the controller's --state-dir? `iris cluster controller serve` "
            "makes a CA at its first start, `iris cluster certs --make` before it"
        )
    return place, ensure_certificates(directory, renew=renew)


def _make(state_dir: Path) -> None:
    """Create the directory if necessary. Raises InvalidRequest if it cannot be created."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(state_dir, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InvalidRequest(f"cannot keep the state in {state_dir} (--state-dir): {error.strerror}") from None


def restore_state(
    config_path: Path | None, *, state_dir: Path | None, remote_state_dir: str | None, at_ms: int | None
) -> Restored:
    """Create a controller's state from its remote state.

    Args:
        config_path: The config file.
        state_dir: The new state directory; without a config file, the local cluster's by default.
        remote_state_dir: The remote state; None for the config file's.
        at_ms: Point in time (Unix ms) to restore; None for the latest.

    Raises:
        InvalidRequest: The directory or the remote state is not given.
        Conflict: As in `rewind`.
        NotFound: As in `rewind`.
    """
    if config_path is None and state_dir is None:
        local = local_config(LocalCluster().paths)
        state_dir, remote_state_dir = local.state_dir, remote_state_dir or local.remote_state_dir
    config = controller_config(config_path, Given(state_dir, remote_state_dir=remote_state_dir, durability="local"))
    if not config.remote_state_dir:
        raise InvalidRequest(
            "the source to restore from is missing: give --remote-state-dir, or storage.remote_state_dir in the config"
        )
    done = rewind(config.remote_state_dir, config.state_dir, at_ms, config.pace.lease_timeout_s)
    return Restored(config.state_dir, config.remote_state_dir, done.sequence, done.moved_to)
