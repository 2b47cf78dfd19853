"""Ports for tasks: free ones, different ones, and of a range only those."""

import socket

import pytest

from iris.worker.attempts.ports import PortChooser, PortsInUse

NAMES = ("a", "b", "c")


def free_range(size: int) -> tuple[int, int]:
    """So many ports in a row that nothing listens on."""
    for first in range(21_000, 29_000, size):
        try:
            PortChooser((first, first + size - 1)).free_ports(tuple(map(str, range(size))))
        except OSError:
            continue
        return first, first + size - 1
    raise AssertionError("no free ports here")


def test_ports_of_a_range_are_given_in_turn_a_taken_one_is_passed_over_and_too_few_are_told() -> None:
    first, last = free_range(6)
    chooser = PortChooser((first, last))
    assert chooser.free_ports(NAMES) == {"a": first, "b": first + 1, "c": first + 2}
    assert chooser.free_ports(NAMES) == {"a": first + 3, "b": first + 4, "c": last}
    assert chooser.free_ports(("a",)) == {"a": first}
    first, last = free_range(3)
    with socket.socket() as taken:
        taken.bind(("", first))
        taken.listen()
        chooser = PortChooser((first, last))
        assert set(chooser.free_ports(("a", "b")).values()) == {first + 1, last}
        with pytest.raises(OSError, match=rf"no port from {first} to {last} \(--port-range\) is free"):
            chooser.free_ports(NAMES)
    assert set(chooser.free_ports(NAMES).values()) == {first, first + 1, last}


def test_what_an_owner_has_is_given_to_nobody_else_and_who_asks_for_too_many_waits_for_nobody() -> None:
    first, last = free_range(3)
    chooser = PortChooser((first, last))
    one = chooser.free_ports(("a", "b"), "one")
    for _ in range(3):
        with pytest.raises(PortsInUse, match="is free"):
            chooser.free_ports(("a", "b"), "two")
    assert not set(chooser.free_ports(("a",), "two").values()) & set(one.values())
    chooser.release("two")
    chooser.release("one")
    assert set(chooser.free_ports(NAMES, "two").values()) == {first, first + 1, last}
    assert set(chooser.free_ports(NAMES, "two").values()) == {first, first + 1, last}, "its own are given back first"
    with pytest.raises(OSError, match="is free") as refused:
        chooser.free_ports(("a", "b", "c", "d"), "one")
    assert not isinstance(refused.value, PortsInUse)


def test_without_a_range_any_will_do() -> None:
    found = PortChooser().free_ports(tuple(map(str, range(20))))
    assert len(set(found.values())) == 20
    assert all(1024 <= port <= 65_535 for port in found.values())
    assert PortChooser().free_ports(()) == {}
