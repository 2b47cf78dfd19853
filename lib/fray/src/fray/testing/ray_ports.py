"""Ports of a Ray test cluster that nothing else on this machine uses."""

import random
import socket
from typing import NoReturn

LOOPBACK = "127.0.0.1"
_WORKER_PORTS = range(10_200, 32_700)
_PORTS_OF_A_NODE = 400
_taken_ports: set[int] = set()


def not_tested(reason: str) -> NoReturn:
    """Skip the test, with a reason."""
    import pytest

    pytest.skip(f"NOT TESTED on Ray: {reason}")


def free_ports(count: int) -> list[int]:
    """Return ports for the servers of a head. Skip the test if none are free."""
    # Below 10002, where Ray begins to number workers' ports.
    found: list[int] = []
    for port in range(7800, 10000):
        # A server that has gone may have left clients that look for it.
        if port not in _taken_ports and is_free(port):
            _taken_ports.add(port)
            found.append(port)
        if len(found) == count:
            return found
    not_tested("no free port between 7800 and 10000")


def worker_ports() -> dict[str, int]:
    """Return ports for the workers and drivers of one node that no other node here uses.

    Ray sends an exit request without naming the worker. With ports chosen by the kernel, a request for a dead worker
    could reach a process of another cluster that reuses its port.
    """
    starts = range(_WORKER_PORTS.start, _WORKER_PORTS.stop - _PORTS_OF_A_NODE, _PORTS_OF_A_NODE)
    fresh = [start for start in starts if start not in _taken_ports]
    if not fresh:
        _taken_ports.difference_update(starts)
        fresh = list(starts)
    # Another test run on this machine chooses for itself.
    for start in random.sample(fresh, len(fresh)):
        _taken_ports.add(start)
        ports = range(start, start + _PORTS_OF_A_NODE)
        if all(map(is_free, ports)):
            return {"min_worker_port": ports[0], "max_worker_port": ports[-1]}
    not_tested(f"no {_PORTS_OF_A_NODE} free ports in a row between {_WORKER_PORTS.start} and {_WORKER_PORTS.stop}")


def is_free(port: int) -> bool:
    """Return whether nothing listens on the port or is connected from it."""
    with socket.socket() as probe:
        # What has ended is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
