"""A job's log file on its node, with any bytes, read through the cluster's dashboard."""

import asyncio
import codecs
import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import aiohttp

_LOOK_SECONDS: Final = 1.0


class TailBroken(Exception):
    """A followed log broke off, or was silent for too long."""

    def __init__(self, reason: str, *, silent: bool = False) -> None:
        super().__init__(reason)
        self.silent = silent


async def read_log_file(
    request: AbstractAsyncContextManager[aiohttp.ClientResponse],
    quiet_seconds: float,
    is_over: Callable[[], Awaitable[bool]] | None,
) -> AsyncGenerator[str, None]:
    """Yield the text of a log. Bytes that are not UTF-8 become U+FFFD and line ends become line feeds, as in Ray.

    Args:
        request: Requests the file.
        quiet_seconds: Seconds without a byte after which the log counts as broken.
        is_over: Returns whether the file is complete; None if the response ends by itself.

    Raises:
        TailBroken: The file cannot be read completely.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    quiet = 0.0
    try:
        async with request as response:
            if response.status != 200:
                raise TailBroken(f"its file cannot be read either ({response.status})")
            while True:
                try:
                    data = await asyncio.wait_for(response.content.readany(), _LOOK_SECONDS)
                except TimeoutError:
                    quiet += _LOOK_SECONDS
                    if is_over is not None and await is_over():
                        data = b""
                    elif quiet >= quiet_seconds:
                        raise TailBroken(f"no data for {quiet:g} s", silent=True) from None
                    else:
                        continue
                quiet = 0.0
                if text := decoder.decode(data, final=not data):
                    yield text
                if not data:
                    return
    except (aiohttp.ClientError, OSError) as error:
        raise TailBroken(reason_of(error)) from None


def reason_of(error: BaseException) -> str:
    """Return a network error in words."""
    cause = error.__cause__ or error.__context__
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(cause, OSError) and cause.strerror and not isinstance(error, aiohttp.ClientResponseError):
        return cause.strerror
    return str(error) or type(error).__name__
