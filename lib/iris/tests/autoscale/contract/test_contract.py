"""What the autoscaler expects of every provider."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.autoscale.model import Outcome
from iris.autoscale.port import Phase, SliceOrder
from support.iris.slice_providers import GoogleKind, Kind, LocalKind, ManualKind, Place
from support.iris.ssh_hosts import ssh_hosts, ssh_hosts_of_a_network, why_not, why_not_in_a_network


def _kind(name: str, root: Path) -> Kind:
    if name.startswith("manual"):
        is_network = "network" in name
        if reason := why_not_in_a_network() if is_network else why_not():
            pytest.skip(reason)
        return ManualKind(root, ssh_hosts_of_a_network if is_network else ssh_hosts)
    return LocalKind(root) if name == "local" else GoogleKind()


_PROCESS, _SOAK = pytest.mark.process, pytest.mark.soak


@pytest.fixture(
    params=[
        "local",
        "gcp",
        pytest.param("manual", marks=_PROCESS),
        pytest.param("manual, in a network", marks=(_PROCESS, _SOAK)),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(_kind(request.param, tmp_path))
    yield made
    made.close()


def groups(place: Place) -> dict[str, str]:
    return {name: found.group for name, found in place.found().items()}


def test_a_repeated_create_finds_the_slice(place: Place) -> None:
    for _ in range(2):
        assert place.create("s-0").outcome is Outcome.DONE
        (found,) = place.found().values()
        assert (found.name, found.group) == ("s-0", place.kind.groups[0].name)
        assert found.phase in (Phase.CREATING, Phase.READY)
        place.kind.settle()


def test_a_repeated_delete_is_done_and_lists_confirm_it(place: Place) -> None:
    place.create("s-0")
    place.kind.settle()
    place.found()
    for _ in range(2):
        assert place.delete("s-0").outcome is Outcome.DONE
        place.kind.settle()
        assert place.found() == {}
    assert place.delete("never-0").outcome is Outcome.DONE


def test_a_list_has_the_slices_of_all_groups(place: Place) -> None:
    wanted = {f"s-{number}": place.kind.groups[number % 2].name for number in range(5)}
    for number, name in enumerate(wanted):
        assert place.create(name, number % 2).outcome is Outcome.DONE
    assert groups(place) == wanted, "at once"
    place.kind.settle()
    assert groups(place) == wanted


def test_the_next_controller_finds_everything_and_can_delete_it(place: Place) -> None:
    for number in range(2):
        place.create(f"s-{number}", number)
    place.kind.settle()
    before = groups(place)
    place.restart()
    assert groups(place) == before
    assert place.create("s-0").outcome is Outcome.DONE, "the answer was lost with the controller"
    assert groups(place) == before
    assert place.delete("s-1", 1).outcome is Outcome.DONE
    assert place.delete_without_group("s-0").outcome is Outcome.DONE, "its group has left the cluster file"
    place.kind.settle()
    assert place.found() == {}


def test_a_slice_of_another_cluster_is_neither_listed_nor_touched(place: Place) -> None:
    assert place.create("s-0", provider=place.other).outcome is Outcome.DONE
    place.kind.settle()
    assert place.found() == {}
    place.delete("s-0")
    place.delete_without_group("s-0")
    place.create("s-0")
    place.delete("s-0")
    place.kind.settle()
    assert list(place.found(place.other)) == ["s-0"]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_cancelled_call_may_be_repeated(place: Place, steps: int) -> None:
    async def cancelled(call: asyncio.Task[object]) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    async def create() -> None:
        order = SliceOrder("s-0", place.kind.groups[0])
        await cancelled(asyncio.ensure_future(place.ours.create(order)))

    async def delete() -> None:
        await cancelled(asyncio.ensure_future(place.ours.delete("s-0", place.kind.groups[0])))

    place.run(create())
    place.kind.settle()
    assert place.create("s-0").outcome is Outcome.DONE
    assert list(place.found()) == ["s-0"]
    place.run(delete())
    place.kind.settle()
    assert place.delete("s-0").outcome is Outcome.DONE
    place.kind.settle()
    assert place.found() == {}
