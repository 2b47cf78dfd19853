"""Sends one POST to a webhook: only to the checked address, within a total timeout, without redirects."""

import asyncio
import base64
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

from iris.domain.webhooks import IpAddress, Webhook

_LONGEST_STATUS_LINE: Final = 4096


class PostRefusedError(Exception):
    """The notice was refused, here or by the receiver; a retry would not help."""


class PostFailedError(Exception):
    """The notice was not delivered; a retry may help."""


async def post(
    webhook: Webhook,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    refusal: Callable[[IpAddress], str],
    trust: ssl.SSLContext | None = None,
) -> None:
    """Send `body` and return after a 2xx answer.

    Args:
        webhook: The destination.
        body: The body.
        headers: Additional headers.
        timeout_s: Total timeout, from name resolution to the answer.
        refusal: Returns why an address is not allowed; empty if it is allowed.
        trust: The trusted authorities for https; None for the system's.

    Raises:
        PostRefusedError: The address is not allowed, or the answer is a redirect or another 3xx or 4xx.
        PostFailedError: No connection, no answer in time, 5xx, 408, 425 or 429.
    """
    try:
        async with asyncio.timeout(timeout_s):
            address = await _address(webhook, refusal)
            status = await _exchange(webhook, address, _request(webhook, body, headers), trust)
    except TimeoutError:
        raise PostFailedError(f"{webhook} did not answer within {timeout_s:g} s") from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise PostFailedError(f"{webhook} cannot be reached: {error}") from None
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise PostRefusedError(f"{webhook} answered {status}: redirects are not followed; give the address itself")
    if 400 <= status < 500 and status not in (408, 425, 429):
        raise PostRefusedError(f"{webhook} answered {status}")
    raise PostFailedError(f"{webhook} answered {status}")


async def _address(webhook: Webhook, refusal: Callable[[IpAddress], str]) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(webhook.host, webhook.port, type=socket.SOCK_STREAM)
    # Each of them is judged: which one is used is not the receiver's choice.
    addresses = [str(item[4][0]) for item in found]
    for address in addresses:
        reason = refusal(ipaddress.ip_address(address.partition("%")[0]))
        if reason:
            raise PostRefusedError(reason)
    return addresses[0]


async def _exchange(webhook: Webhook, address: str, request: bytes, trust: ssl.SSLContext | None) -> int:
    secure = (trust or ssl.create_default_context()) if webhook.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        address, webhook.port, ssl=secure, server_hostname=webhook.host if secure else None, limit=_LONGEST_STATUS_LINE
    )
    try:
        writer.write(request)
        await writer.drain()
        line = (await reader.readuntil(b"\n")).split()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            writer.transport.abort()
    if len(line) < 2 or not line[0].startswith(b"HTTP/1.") or not line[1].isdigit():
        raise PostFailedError(f"{webhook} does not speak HTTP")
    return int(line[1])


def _request(webhook: Webhook, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = {"Host": webhook.authority, **headers, "Content-Length": str(len(body)), "Connection": "close"}
    if webhook.userinfo:
        given = base64.b64encode(unquote(webhook.userinfo).encode()).decode()
        lines["Authorization"] = f"Basic {given}"
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {webhook.target} HTTP/1.1\r\n{head}\r\n".encode() + body
