"""Runs scripts on hosts by ssh, over connections that stay open."""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from iris.autoscale.manual.claims import Target, split_address
from iris.autoscale.manual.scripts import fields_of
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.rules import SshSettings
from rigging.extras import needing

with needing("ssh", "hosts of slice_template.manual", "marin-iris"):
    import asyncssh

_TURN_S: Final = 0.003
"""Time between two beginnings, so that hundreds do not hold up what else runs in the loop."""
_KEEPALIVE_S: Final = 15
_MOST_WORDS: Final = 400
_USUAL_KNOWN_HOSTS: Final = "~/.ssh/known_hosts"


class HostFailure(Exception):
    """A host did not do what was asked.

    Args:
        answer: Why.
        is_away: Whether it could not be reached, so that nothing is known of what it did.
    """

    def __init__(self, answer: Answer, *, is_away: bool) -> None:
        super().__init__(answer.words)
        self.answer, self.is_away = answer, is_away


class Ssh:
    """Connections to hosts. Host keys must be in the file of known hosts; there is no password and no question.

    Args:
        settings: How to reach them.
    """

    def __init__(self, settings: SshSettings) -> None:
        asyncssh.set_log_level(logging.WARNING)
        self._settings = settings
        self._known_hosts = Path(settings.known_hosts_file or _USUAL_KNOWN_HOSTS).expanduser()
        self._connections: dict[Target, asyncssh.SSHClientConnection] = {}
        self._locks: defaultdict[Target, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._turns = asyncio.Lock()

    async def run(self, target: Target, script: str, deadline_s: float = 0) -> Mapping[str, str]:
        """Run a script that may run twice; return what it told. The connection is opened or opened again if needed.

        Args:
            target: The host.
            script: A script of `scripts`, sent to the standard input of `sh`.
            deadline_s: The deadline after connecting; 0 for that of connections.

        Raises:
            HostFailure: The host is out of reach, or the script failed.
        """
        for _ in range(2):
            was_open = target in self._connections
            connection = await self._connection(target)
            try:
                await self._turn()
                async with asyncio.timeout(deadline_s or self._settings.connect_timeout_s):
                    done = await connection.run("sh -s", input=script, errors="replace")
            except (OSError, asyncssh.Error) as error:
                self._drop(target)
                if was_open and not isinstance(error, TimeoutError):
                    continue  # it broke unnoticed
                raise HostFailure(self._away(target, error), is_away=True) from None
            fields = fields_of(str(done.stdout or ""))
            if fields is None:
                said = str(done.stderr or done.stdout or "").split()
                words = " ".join(said)[-_MOST_WORDS:] or f"exit code {done.exit_status}"
                raise HostFailure(Answer(Outcome.CONFIG, f"{target.address}: {words}"), is_away=False)
            return fields
        raise AssertionError("a new connection is not tried twice")

    async def upload(self, target: Target, files: Mapping[str, bytes | Path]) -> None:
        """Copy files or contents to a host, by their paths there. Each appears there as a whole.

        Raises:
            HostFailure: The host is out of reach, or cannot store them.
        """
        connection, place = await self._connection(target), ""
        try:
            async with connection.start_sftp_client() as sftp:
                for place, source in files.items():
                    if isinstance(source, Path):
                        await sftp.put(source, f"{place}.part")
                    else:
                        async with sftp.open(f"{place}.part", "wb") as file:
                            await file.write(source)
                    await sftp.chmod(f"{place}.part", 0o755)
                    await sftp.posix_rename(f"{place}.part", place)
        except asyncssh.SFTPError as error:
            why = "no reason given; is its disk full?" if isinstance(error, asyncssh.SFTPFailure) else error.reason
            words = f"{target.address}: cannot store the release ({place}): {why}"
            raise HostFailure(Answer(Outcome.CONFIG, words), is_away=False) from None
        except (OSError, asyncssh.Error) as error:
            self._drop(target)
            raise HostFailure(self._away(target, error), is_away=True) from None

    async def close(self) -> None:
        """Close all connections."""
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections), return_exceptions=True)

    async def _connection(self, target: Target) -> asyncssh.SSHClientConnection:
        async with self._locks[target]:
            found = self._connections.get(target)
            if found is None or found.is_closed():
                found = self._connections[target] = await self._connect(target)
            return found

    async def _connect(self, target: Target) -> asyncssh.SSHClientConnection:
        settings = self._settings
        host, port = split_address(target.address, settings.port)
        key = self._key_of(target)
        user = target.user or settings.user
        await self._turn()
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                return await asyncssh.connect(
                    host,
                    port,
                    known_hosts=str(self._known_hosts) if self._known_hosts.exists() else b"",
                    preferred_auth="publickey",
                    keepalive_interval=_KEEPALIVE_S,
                    **({"username": user} if user else {}),
                    **({"client_keys": [key]} if key else {}),
                )
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            raise HostFailure(Answer(Outcome.CONFIG, f"the key {key or 'of ssh'}: {error}"), is_away=True) from None
        except (OSError, asyncssh.Error) as error:
            raise HostFailure(self._away(target, error), is_away=True) from None

    async def _turn(self) -> None:
        async with self._turns:
            await asyncio.sleep(_TURN_S)

    def _key_of(self, target: Target) -> str:
        key = target.key_file or self._settings.key_file
        return os.path.expanduser(key)

    def _drop(self, target: Target) -> None:
        connection = self._connections.pop(target, None)
        if connection is not None:
            connection.abort()

    def _away(self, target: Target, error: Exception) -> Answer:
        """Return why a host cannot be used, and what to do about it."""
        address, key = target.address, self._key_of(target)
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return Answer(Outcome.PERMISSION, self._of_host_key(address))
        if isinstance(error, asyncssh.PermissionDenied):
            user = target.user or self._settings.user or "of the controller"
            return Answer(Outcome.PERMISSION, f"{address} refuses user {user} with {key or 'the usual keys'}: {error}")
        if isinstance(error, FileNotFoundError | PermissionError) and error.filename:
            return Answer(Outcome.CONFIG, f"cannot read {error.filename}: {error.strerror}")
        words = "no answer" if isinstance(error, TimeoutError) else " ".join(str(error).split()) or type(error).__name__
        return Answer(Outcome.UNKNOWN, f"{address} is out of reach: {words[:_MOST_WORDS]}")

    def _of_host_key(self, address: str) -> str:
        file = self._known_hosts
        host, port = split_address(address, self._settings.port)
        known = asyncssh.match_known_hosts(str(file), host, "", port)[0] if file.exists() else ()
        name = host if port == 22 else f"[{host}]:{port}"
        if known:
            return (
                f"the host key of {address} is not the one in {file}: somebody may pose as it. If it was installed "
                f"anew, remove the old key with `ssh-keygen -R '{name}' -f {file}` and add the new one"
            )
        return (
            f"{file} lacks the host key of {address}: add it with `ssh-keyscan -p {port} {host} >> {file}`, "
            "and compare its fingerprint"
        )
