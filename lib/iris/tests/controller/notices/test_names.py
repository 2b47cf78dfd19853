"""Addresses of hosts for the check at submit: asked for once in a while, not waited for long, never an error."""

import asyncio
import ipaddress
import socket

from iris.controller.notices.names import HostAddresses
from support.rigging.clock import FakeClock


class Resolver:
    """Answers from a table, and counts; a host that is not in it has no address, one without an answer hangs."""

    def __init__(self, table: dict[str, list[str] | None]) -> None:
        self.table = table
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        if host not in self.table:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answer = self.table[host]
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return answer


async def test_answers_are_kept_for_a_while_also_that_there_was_none() -> None:
    clock = FakeClock()
    resolver = Resolver({"a": ["10.0.0.1", "fe80::1%eth0"], "hangs": None})
    hosts = HostAddresses(resolver, timeout_s=0.001, kept_s=30.0, now=clock.monotonic)
    for _ in range(2):
        assert await hosts.of("a") == [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("fe80::1")]
        assert await hosts.of("none") == []
        assert await hosts.of("hangs") == []
    assert resolver.asked == ["a", "none", "hangs"]
    clock.advance(31)
    resolver.table["none"] = ["1.2.3.4"]
    assert await hosts.of("none") == [ipaddress.ip_address("1.2.3.4")]
