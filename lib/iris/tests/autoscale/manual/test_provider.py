"""Slices on hosts that are reached by Debian's sshd: what is started, left, waited for and refused."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris.autoscale.manual.former import FormerHosts, targets_of
from iris.autoscale.manual.provider import ManualProvider
from iris.autoscale.manual.scripts import HostSettings
from iris.autoscale.manual.ssh import Ssh
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Listing, Phase, SliceFound, SliceOrder
from iris.autoscale.rules import Platform
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ManualTemplate, ScaleGroup
from support.iris.host_cluster import until
from support.iris.small_disk import small_disk
from support.iris.ssh_hosts import (
    SshHost,
    SshHosts,
    fake_release,
    ssh_hosts,
    ssh_hosts_of_a_network,
    why_not,
    why_not_in_a_network,
)

pytestmark = pytest.mark.process

SECRET = "secret-of-the-cluster"


class Fleet:
    """Two slices of two hosts each; `restart` makes the next controller's provider."""

    def __init__(self, place: Path, hosts: SshHosts) -> None:
        self.hosts = hosts
        self.settings = hosts.settings
        self.release = fake_release(place)
        self.group = ScaleGroup("pair", Resources(), 2, zone="z", template=ManualTemplate(hosts.addresses))
        self._runner = asyncio.Runner()
        self.provider = self.made()

    def made(self, owner: str = "ours-1") -> ManualProvider:
        settings = HostSettings("10.0.0.1:7077", platform=Platform(environment=(("KEY", SECRET),)))
        former = FormerHosts(str(self.hosts.place / "state"))
        former.add(targets_of([self.group]))
        return ManualProvider(Ssh(self.settings), owner, [self.group], self.release, lambda: settings, former)

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    def restart(self) -> None:
        self.run(self.provider.close())
        self.provider = self.made()

    def create(self, name: str, **more: Any) -> Answer:
        return self.run(self.provider.create(SliceOrder(name, self.group, SECRET, **more)))  # type: ignore[no-any-return]

    def delete(self, name: str) -> Answer:
        return self.run(self.provider.delete(name, self.group))  # type: ignore[no-any-return]

    def list(self) -> Listing:
        return self.run(self.provider.list())  # type: ignore[no-any-return]

    def until(self, name: str, phase: Phase, words: str = "") -> SliceFound:
        def there() -> SliceFound | None:
            found = self.list().found.get(name)
            if found is not None and phase is Phase.READY:
                hosts = [host for host in self.hosts.hosts if host.address in found.addresses]
                if not all((host.files / "iris-worker/environment").exists() for host in hosts):
                    return None  # the last file that a played worker writes
            return found if found is not None and found.phase is phase and words in found.words else None

        return until(there, f"{name} is {phase}")  # type: ignore[no-any-return]

    def close(self) -> None:
        self.run(self.provider.close())
        self._runner.close()


@pytest.fixture(params=["loopback", pytest.param("network", marks=pytest.mark.soak)])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    is_network = request.param == "network"
    if reason := why_not_in_a_network() if is_network else why_not():
        pytest.skip(reason)
    with (ssh_hosts_of_a_network if is_network else ssh_hosts)(tmp_path, 4) as hosts:
        made = Fleet(tmp_path, hosts)
        yield made
        made.close()


def left(host: SshHost) -> set[str]:
    return {path.name for path in host.files.iterdir()}


def test_a_slice_starts_without_a_secret_to_be_seen_and_leaves_only_caches(fleet: Fleet) -> None:
    assert fleet.create("s-0").outcome is Outcome.DONE
    found = fleet.until("s-0", Phase.READY)
    assert found.addresses == fleet.hosts.addresses[:2]
    for number, host in enumerate(fleet.hosts.hosts[:2]):
        words = (host.files / "iris-worker/words").read_text().splitlines()
        assert words[words.index("--name") + 1] == f"s-0-w{number}"
        assert (host.files / "join-token").read_text().strip() == SECRET
        assert f"KEY={SECRET}" in (host.files / "iris-worker/environment").read_text()
        secrets = [path for path in host.files.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
        assert {path.name for path in secrets} == {"join-token", "boot.sh", "environment"}, "the last is the test's"
        assert all((host.files / name).stat().st_mode & 0o077 == 0 for name in ("join-token", "boot.sh"))
        assert not [process for process in host.processes() if SECRET in " ".join(process.cmdline())]
    fleet.restart()
    assert fleet.list().found == {"s-0": found}, "the next controller adopts it"
    assert fleet.delete("s-0").outcome is Outcome.DONE
    assert fleet.list().found == {}
    for host in fleet.hosts.hosts[:2]:
        assert left(host) <= {"bin", "releases"}
        assert host.processes() == []
    assert not fleet.hosts.hosts[2].files.exists()


def test_one_connection_serves_all_lists(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.list()
    for host in fleet.hosts.hosts:
        assert (host.home.parent / "log").read_text().count("Accepted publickey") == 1


def test_a_host_out_of_reach_is_waited_for(fleet: Fleet) -> None:
    fleet.create("s-0")
    found = fleet.until("s-0", Phase.READY)
    first = fleet.hosts.hosts[0]
    first.cut()
    listing = fleet.list()
    assert not listing.unlisted_groups, "what it said last counts, and other hosts go on"
    assert replace(listing.found["s-0"], words="") == found
    assert f"{first.address} is out of reach" in listing.found["s-0"].words
    assert f"{first.address} is out of reach" in listing.troubles["pair"]
    assert fleet.create("s-1").outcome is Outcome.DONE
    answer = fleet.delete("s-0")
    assert (answer.outcome, "is out of reach" in answer.words) == (Outcome.UNKNOWN, True)
    fleet.restart()
    listing = fleet.list()
    assert "waiting for hosts: " + first.address in listing.unlisted_groups["pair"].words
    assert fleet.create("s-2").outcome is Outcome.UNKNOWN, "the slice may be on the host that is not there"
    first.start()
    assert set(fleet.list().found) == {"s-0", "s-1"}
    assert fleet.delete("s-0").outcome is Outcome.DONE
    assert first.processes() == []


def test_a_host_that_was_restarted_and_a_worker_that_was_killed_serve_again(fleet: Fleet) -> None:
    fleet.create("s-0")
    fleet.until("s-0", Phase.READY)
    for host, kill_all in zip(fleet.hosts.hosts, (True, False), strict=False):
        before = (host.files / "iris-worker/worker.lock").read_text()
        for process in host.processes():
            if kill_all or "boot.sh" not in " ".join(process.cmdline()):
                process.kill()

        def is_new(host: SshHost = host, before: str = before) -> bool:
            fleet.list()
            return (host.files / "iris-worker/worker.lock").read_text() not in ("", before)

        until(is_new, "another worker runs")
    assert fleet.until("s-0", Phase.READY)


def lose_key(fleet: Fleet) -> None:
    fleet.hosts.known_hosts.write_text("")


def lose_file(fleet: Fleet) -> None:
    fleet.hosts.known_hosts.unlink()


def change_key(fleet: Fleet) -> None:
    fleet.hosts.hosts[0].change_key()


def refuse(fleet: Fleet) -> None:
    fleet.settings = replace(fleet.settings, key_file=str(fleet.hosts.hosts[0].home.parent / "host-key"))


def misname(fleet: Fleet) -> None:
    fleet.settings = replace(fleet.settings, key_file="/nowhere/key")


@pytest.mark.parametrize(
    ("change", "outcome", "words"),
    [
        (lose_key, Outcome.PERMISSION, r"{file} lacks the host key of {host}: add it with `ssh-keyscan -p {port} {ip}"),
        (lose_file, Outcome.PERMISSION, r"{file} lacks the host key of {host}"),
        (change_key, Outcome.PERMISSION, r"the host key of {host} is not the one in {file}: somebody may pose as it"),
        (refuse, Outcome.PERMISSION, r"{host} refuses user {user} with {place}/h0/host-key: Permission denied"),
        (misname, Outcome.CONFIG, r"cannot read /nowhere/key: No such file"),
    ],
)
def test_a_host_that_may_not_be_used_is_named(
    fleet: Fleet, change: Callable[[Fleet], None], outcome: Outcome, words: str
) -> None:
    change(fleet)
    fleet.provider = fleet.made()
    host, settings = fleet.hosts.hosts[0], fleet.settings
    told = words.format(
        file=settings.known_hosts_file,
        host=host.address,
        port=host.port,
        ip=host.ip,
        user=settings.user,
        place=fleet.hosts.place,
    )
    answer = fleet.list().unlisted_groups["pair"]
    assert (answer.outcome, told in answer.words) == (outcome, True), answer.words
    assert not host.files.exists()


def test_a_failed_start_is_told_in_the_hosts_words_and_another_host_is_tried(fleet: Fleet) -> None:
    first, second = fleet.hosts.hosts[0], fleet.hosts.hosts[2]
    first.files.write_text("in the way")
    answer = fleet.create("s-0")
    assert (answer.outcome, answer.hosts) == (Outcome.UNKNOWN, (first.address,)), "other hosts may do"
    assert "mkdir: cannot create directory" in answer.words
    assert fleet.list().found == {}, "the other host of the slice is free again"
    first.files.unlink()
    fleet.release = replace(fleet.release, name="2", files={"iris-2-py3-none-any.whl": b"no wheel"})
    fleet.restart()
    fleet.create("s-1")
    for host in fleet.hosts.addresses[:2]:
        found = fleet.until("s-1", Phase.BROKEN, f"{host}: installing iris failed with code")
    assert (found.outcome, found.hosts_lost) == (Outcome.UNKNOWN, (0, 1)), "other hosts may do"
    fleet.delete("s-1")
    fleet.release = fake_release(fleet.hosts.place)
    fleet.restart()
    fleet.group = replace(fleet.group, host=Resources(device=Device("gpu", "H100", 8)))
    assert fleet.create("s-2", avoid=frozenset([first.address])).outcome is Outcome.DONE
    found = fleet.until("s-2", Phase.CREATING, f"{second.address}: ended 1 iris: this host has no GPU")
    assert (found.addresses[0], "a former line" in found.words) == (second.address, False)
    assert fleet.delete("s-2").outcome is Outcome.DONE


def test_a_full_disk_is_told(fleet: Fleet) -> None:
    host = fleet.hosts.hosts[0]
    with small_disk(host.files, "1m") as disk:
        if disk is None:
            pytest.skip("this user may not mount")
        fleet.create("s-0", failures=dict.fromkeys(fleet.hosts.addresses[2:], 1))
        told = f"{host.address}: cannot store the release ({host.files}/bin/uv): no reason given; is its disk full?"
        found = fleet.until("s-0", Phase.BROKEN, told)
        assert found.outcome is Outcome.UNKNOWN, "other hosts may do"
        assert fleet.delete("s-0").outcome is Outcome.DONE
        assert fleet.list().found == {}


def test_a_slice_on_hosts_that_have_left_the_file_is_broken_and_ends(fleet: Fleet) -> None:
    fleet.create("s-0")
    fleet.until("s-0", Phase.READY)
    (first, second, *_), state = fleet.hosts.hosts, FormerHosts(str(fleet.hosts.place / "state"))
    fleet.group = replace(fleet.group, template=ManualTemplate(fleet.hosts.addresses[2:]))
    first.cut()
    fleet.restart()
    for _ in range(2):
        assert "s-0" in fleet.list().found, "the other host serves it"
    first.start()
    assert f"{first.address} is no longer in the cluster file" in fleet.until("s-0", Phase.BROKEN, first.address).words
    assert fleet.delete("s-0").outcome is Outcome.DONE
    assert fleet.list().found == {}
    assert first.processes() == second.processes() == []
    fleet.restart()
    fleet.list()
    assert set(state.load()) == set(fleet.hosts.addresses[2:])


def test_a_host_of_another_cluster_is_refused_by_name_and_left_alone(fleet: Fleet) -> None:
    other = fleet.made("other-2")
    for name in ("s-0", "s-1"):
        assert fleet.run(other.create(SliceOrder(name, fleet.group))).outcome is Outcome.DONE
    fleet.run(other.list())
    answer = fleet.create("s-0")
    assert answer.outcome is Outcome.STOCK_OUT
    assert f"{fleet.hosts.addresses[0]} serves another cluster, other-2 (slice s-0)" in answer.words
    fleet.restart()
    assert fleet.delete("s-0").outcome is Outcome.DONE, "which of the hosts has it is not known yet, so all are asked"
    assert set(fleet.run(other.list()).found) == {"s-0", "s-1"}
    fleet.run(other.close())


def test_an_interrupted_start_is_broken_and_can_be_deleted_or_repeated(fleet: Fleet) -> None:
    fleet.create("s-0")
    fleet.restart()
    assert fleet.list().found["s-0"].phase is Phase.BROKEN
    assert fleet.create("s-0").outcome is Outcome.DONE
    fleet.until("s-0", Phase.READY)
    fleet.create("s-1")
    fleet.restart()
    assert fleet.delete("s-1").outcome is Outcome.DONE
    assert set(fleet.list().found) == {"s-0"}
