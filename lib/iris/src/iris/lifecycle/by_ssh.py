"""A cluster's controller and slices on hosts that exist, by ssh."""

import asyncio
import platform
from base64 import b64decode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Final

from iris.autoscale.boot.release import Release
from iris.autoscale.manual.claims import Target
from iris.autoscale.manual.former import FormerHosts
from iris.autoscale.manual.provider import ManualProvider
from iris.autoscale.manual.scripts import HostSettings
from iris.autoscale.manual.ssh import HostFailure, Ssh
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Phase
from iris.domain.resources import Resources
from iris.domain.scale_groups import ScaleGroup
from iris.lifecycle.machines import Found, Machine
from rigging.errors import MarinError

_START_S: Final = 60.0
_KIND: Final = "host"
_EXTRAS: Final[Mapping[str, str]] = {"gs": ",gcs", "s3": ",s3"}


class SshMachines:
    """The controller's host, and the slices on hosts of a cluster file (`Machines`).

    Args:
        ssh: The connections.
        owner: The label of the cluster, with its name and id.
        host: The address of the controller's host.
        port: The controller's port.
        groups: The scale groups.
        release: What the host installs.
        state_url: The remote state, which has the hosts of earlier files. Its storage may need an extra.
    """

    def __init__(
        self,
        ssh: Ssh,
        owner: str,
        host: str,
        port: int,
        groups: Sequence[ScaleGroup],
        release: Release,
        state_url: str = "",
    ) -> None:
        self._ssh, self._owner, self._release, self._port = ssh, owner, release, port
        self._storage = _EXTRAS.get(state_url.partition("://")[0], "")
        self._target = Target(host)
        self._groups = {group.name: group for group in groups}
        former = FormerHosts(state_url, forgets=False) if state_url else None
        self._slices = ManualProvider(ssh, owner, groups, release, lambda: HostSettings(""), former)

    async def find(self) -> Found:
        lost: list[str] = []
        controller: list[Machine] = []
        try:
            told = await self._run("look")
            if told.get("owner") == self._owner:
                is_up = bool(told.get("runs"))
                state = "RUNNING" if is_up else "STOPPED"
                controller = [self._machine(Phase.READY if is_up else Phase.BROKEN, state)]
        except HostFailure as failure:
            lost.append(failure.answer.words)
        listing = await self._slices.list()
        slices = [
            Machine(each.name, _KIND, "", each.group, "", each.phase, each.phase.upper(), each.words, each.addresses)
            for each in sorted(listing.found.values(), key=lambda each: each.name)
        ]
        lost += [f"group {name}: {answer.words}" for name, answer in listing.unlisted_groups.items()]
        return Found((*slices, *controller), tuple(lost))

    async def create_controller(self, script: str) -> Answer:
        """Install this release and run the controller; `script` is the cluster file."""
        release = self._release
        try:
            told = await self._run("ready", version=release.name)
            top, uv = told["top"], told.get("uv", "")
            has = told.get("files", "").split()
            missing: dict[str, bytes | Path] = {
                f"{top}/releases/{release.name}/{name}": content
                for name, content in release.files.items()
                if name not in has
            }
            if not uv:
                if release.uv is None or told.get("machine") != f"{platform.system()} {platform.machine()}":
                    return Answer(Outcome.CONFIG, f"{self._target.address} has no uv: install uv there")
                uv = f"{top}/bin/uv"
                missing[uv] = release.uv
            await self._ssh.upload(self._target, missing)
            await self._run(
                "start", version=release.name, content=script, boot=_shell("host_boot.sh"), file="cluster.yaml",
                python=release.python, port=str(self._port), uv=uv, storage=self._storage,
            )  # fmt: skip
        except HostFailure as failure:
            return failure.answer
        return Answer(Outcome.DONE)

    async def restart_controller(self, machine: Machine, script: str) -> Answer:
        del machine  # there is one
        return await self.create_controller(script)

    async def delete(self, machines: Sequence[Machine]) -> Mapping[Machine, Answer]:
        answers = await asyncio.gather(*map(self._delete, machines))
        return dict(zip(machines, answers, strict=True))

    async def phases(self, machine: Machine) -> tuple[Mapping[str, str], ...]:
        if not machine.is_controller:
            return ()
        return (await self._asked("look"),)

    async def console(self, machine: Machine, start: int = 0) -> tuple[str, int]:
        del machine
        told = await self._asked("console", first=str(start + 1))
        return b64decode(told.get("log", "")).decode("utf-8", "replace"), int(told.get("end_at", start))

    async def close(self) -> None:
        await self._slices.close()
        await self._ssh.close()

    async def _delete(self, machine: Machine) -> Answer:
        if not machine.is_controller:
            group = self._groups.get(machine.group) or ScaleGroup(machine.group, Resources())
            return await self._slices.delete(machine.name, group)
        try:
            await self._run("stop")
        except HostFailure as failure:
            return failure.answer
        return Answer(Outcome.DONE)

    async def _asked(self, verb: str, **values: str) -> Mapping[str, str]:
        try:
            return await self._run(verb, **values)
        except HostFailure as failure:
            raise MarinError(failure.answer.words) from None

    async def _run(self, verb: str, **values: str) -> Mapping[str, str]:
        given = {"verb": verb, "owner": self._owner, **values}
        lines = "".join(f"{key}={quote(value)}\n" for key, value in given.items())
        return await self._ssh.run(self._target, lines + _shell("host.sh"), _START_S)

    def _machine(self, phase: Phase, state: str) -> Machine:
        host = self._target.address
        name = host.rpartition(":")[0] or host
        return Machine(
            host, _KIND, "", "", "", phase, state, addresses=(name.strip("[]"),), is_controller=True, has_console=True
        )


def _shell(name: str) -> str:
    return (files("iris.lifecycle") / name).read_text()
