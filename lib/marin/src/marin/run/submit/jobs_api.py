"""A client of Ray's Jobs API with timeouts and helpful errors.

It does not use `ray.job_submission`, whose requests have no timeout: a hanging head would block the command forever.
That client also fails on logs that are not UTF-8, and importing Ray takes four times as long as this module.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import yarl

from marin.run.submit.log_file import TailBroken, read_log_file, reason_of
from rigging.errors import Conflict, Denied, InvalidRequest, MarinError, NotFound, Unavailable
from rigging.ray_token import AuthToken
from rigging.redaction import redact_string

TERMINAL: Final = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 60.0
UPLOAD_SECONDS: Final = 600.0
REMOVAL_SECONDS: Final = 15.0
# Ray watches a job for some seconds after its end, and lists one that was deleted meanwhile again, as failed.
WATCHED_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.2
_SHOWN: Final = 600
# Ray reads a log as UTF-8, and fails at the first byte that is none.
_NOT_UTF8: Final = "UnicodeDecodeError"
# What Ray says as long as the agent of its head node is not there.
_NO_AGENT: Final = "No available agent"
_TAKEN: Final = "already exists. Please use a different submission_id"
_WORD: Final = re.compile(r"[^\W\d_]{2}")


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The cluster's description of a job.

    Args:
        exit_code: None unless its process has ended by itself.
        node_id: The node of its driver; empty if it has none yet. agent: The address of that node's agent.
    """

    status: str
    message: str = ""
    exit_code: int | None = None
    error_type: str = ""
    node_id: str = ""
    agent: str = ""

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


class NotReady(Unavailable):
    """The cluster answers but cannot start jobs yet. Nothing was submitted."""


class NotText(Conflict):
    """The Jobs API cannot return a log, because it is not UTF-8."""


class JobsApi:
    """The Jobs API of one cluster. An async context manager.

    Args:
        address: The URL of the cluster's dashboard.
        origin: The source of the address, for messages.
        connect_seconds: Timeout for the server to be reachable.
        later_address: The address after this command's end, for messages. Defaults to `address`.
        verbose: Whether errors include the cluster's complete answer, not only its last line.
    """

    def __init__(
        self,
        address: str,
        origin: str,
        token: AuthToken,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        later_address: str = "",
        verbose: bool = False,
    ) -> None:
        self._verbose = verbose
        self.address = address.rstrip("/")
        self.shown_address = redact_string(later_address or self.address)
        self._origin = origin
        self._token = token
        self._connect_seconds = connect_seconds
        self._session: aiohttp.ClientSession | None = None
        self._headers = _bearer(token) if token.always else {}
        self._by_file: set[str] = set()
        self._removals: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=self._connect_seconds)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        try:
            await asyncio.gather(*self._removals)
        finally:
            await self._session.close()

    async def check(self) -> str:
        """Check that a Ray cluster answers, and return its version of Ray.

        Raises:
            Unavailable: Nothing answers in time, or it is not a Ray cluster.
            Denied: The cluster requires a token, or a different one.
        """
        try:
            async with asyncio.timeout(2 * self._connect_seconds):
                found = await self._call("GET", "/api/version")
        except TimeoutError:
            raise self._absent(f"no answer in {2 * self._connect_seconds:g} s") from None
        except (NotFound, Conflict) as error:
            raise self._absent(f"the server there has no Jobs API: {error}") from None
        if not isinstance(found, dict) or "ray_version" not in found:
            raise self._absent("the server there is not a Ray cluster")
        return str(found["ray_version"])

    async def has_package(self, name: str) -> bool:
        """Return whether the cluster already has a package. If so, the cluster keeps it for a while."""
        try:
            await self._call("GET", f"/api/packages/gcs/{name}")
        except NotFound:
            return False
        return True

    async def upload_package(self, name: str, data: bytes) -> None:
        """Upload a package. Raise InvalidRequest if it is too large for the cluster."""
        timeout = aiohttp.ClientTimeout(total=UPLOAD_SECONDS, sock_connect=self._connect_seconds)
        await self._call("PUT", f"/api/packages/gcs/{name}", data=data, timeout=timeout)

    async def submit(self, body: Mapping[str, Any]) -> str:
        """Submit a job and return its id. Raise InvalidRequest if the cluster refuses it, NotReady while it starts."""
        timeout = aiohttp.ClientTimeout(total=2 * ANSWER_SECONDS, sock_connect=self._connect_seconds)
        found = await self._call("POST", "/api/jobs/", json=body, timeout=timeout)
        return str(found.get("submission_id") or found.get("job_id"))

    async def info(self, job_id: str, seconds: float = ANSWER_SECONDS) -> JobInfo:
        """Return a job's description, with a timeout in seconds. Raise NotFound."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=self._connect_seconds)
        found = await self._call("GET", f"/api/jobs/{job_id}", timeout=timeout)
        code = found.get("driver_exit_code")
        return JobInfo(
            str(found.get("status")),
            str(found.get("message") or ""),
            code if isinstance(code, int) else None,
            str(found.get("error_type") or ""),
            str(found.get("driver_node_id") or ""),
            str(found.get("driver_agent_http_address") or ""),
        )

    async def who_is_silent(self) -> str:
        """Return which part of a cluster does not answer requests about jobs."""
        try:
            await self.check()
        except MarinError:
            return f"the dashboard at {self.shown_address}"
        return "its head's GCS, which knows of jobs and nodes (the dashboard answers),"

    async def is_node_dead(self, node_id: str, seconds: float) -> bool:
        """Return whether the cluster considers a node dead, because its raylet has not answered for a while."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=self._connect_seconds)
        with contextlib.suppress(MarinError):
            found = await self._call("GET", f"/nodes/{node_id}", timeout=timeout)
            detail = found.get("data", {}).get("detail", {}) if isinstance(found, dict) else {}
            return bool(detail.get("raylet", {}).get("state") == "DEAD")
        return False

    async def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs that the cluster remembers, in Ray's format."""
        found = await self._call("GET", "/api/jobs/")
        return [job for job in found if isinstance(job, dict)] if isinstance(found, list) else []

    async def nodes(self) -> list[dict[str, Any]]:
        """Return the dashboard's description of each node. Raise NotFound if it has no page of nodes."""
        found = await self._call("GET", "/nodes?view=summary")
        summaries = (found.get("data") or {}).get("summary") if isinstance(found, dict) else None
        return [each for each in summaries or () if isinstance(each, dict)]

    def remove(self, job_id: str) -> None:
        """Stop a job and delete it from the cluster's list. The context ends when the job is removed, or after a
        timeout."""
        self._removals.append(asyncio.create_task(self._remove(job_id)))

    async def _remove(self, job_id: str) -> None:
        with contextlib.suppress(MarinError, TimeoutError):
            async with asyncio.timeout(REMOVAL_SECONDS):
                await self.stop(job_id)
                while not (await self.info(job_id)).ended:  # noqa: ASYNC110 - another machine's state
                    await asyncio.sleep(_LOOK_SECONDS)
                await asyncio.sleep(WATCHED_SECONDS)
                await self._call("DELETE", f"/api/jobs/{job_id}")

    async def stop(self, job_id: str) -> bool:
        """Request the stop of a job, and return whether it was running. Raise NotFound."""
        found = await self._call("POST", f"/api/jobs/{job_id}/stop")
        return bool(found.get("stopped"))

    async def logs(self, job_id: str) -> str:
        """Return a job's complete output. Bytes that are not UTF-8 become U+FFFD.

        Raises:
            NotFound: The job does not exist. NotText: Neither the Jobs API nor the file on its node can be read.
        """
        timeout = aiohttp.ClientTimeout(total=UPLOAD_SECONDS, sock_connect=self._connect_seconds)
        if job_id not in self._by_file:
            try:
                found = await self._call("GET", f"/api/jobs/{job_id}/logs", timeout=timeout)
            except NotText:
                self._by_file.add(job_id)
            else:
                return str(found.get("logs") or "")
        try:
            return "".join([text async for text in self._file(job_id, "file", 0.0)])
        except TailBroken as error:
            raise NotText(f"it has bytes that are not UTF-8, which Ray's Jobs API cannot return; {error}") from None

    async def needs_file(self, job_id: str) -> bool:
        """Return whether a job's log must be read from its file, as `tail` and `logs` then do."""
        if job_id in self._by_file:
            return False
        with contextlib.suppress(MarinError):
            await self.logs(job_id)
        return job_id in self._by_file

    async def log_place(self, job_id: str) -> str:
        """Return a readable location of the job's log file."""
        agent = ""
        with contextlib.suppress(MarinError):
            agent = (await self.info(job_id)).agent
        node = yarl.URL(agent).host or "the node of its driver"
        return f"session_latest/logs/job-driver-{job_id}.log of Ray's folder (usually /tmp/ray) on {node}"

    async def _file(self, job_id: str, kind: str, silence: float) -> AsyncGenerator[str, None]:
        """Yield the text of the log's file on the node. A "stream" also yields additions until the job ends."""
        assert self._session is not None
        try:
            node = (await self.info(job_id)).node_id
        except MarinError as error:
            raise TailBroken(str(error)) from None
        name, seconds = f"job-driver-{job_id}.log", f"{UPLOAD_SECONDS:.0f}"
        query = {"node_id": node, "filename": name, "lines": "-1", "timeout": seconds}
        timeout = aiohttp.ClientTimeout(sock_connect=self._connect_seconds)
        request = self._session.get(
            f"{self.address}/api/v0/logs/{kind}", params=query, headers=self._headers, timeout=timeout
        )
        is_over = None if kind == "file" else lambda: self._is_over(job_id)
        async for text in read_log_file(request, max(silence, ANSWER_SECONDS), is_over):
            yield text

    async def _is_over(self, job_id: str) -> bool:
        with contextlib.suppress(MarinError):
            return (await self.info(job_id)).ended
        return False

    async def tail(self, job_id: str, silence: float) -> AsyncIterator[str]:
        """Yield a job's past and further output, until the server ends it.

        Raises:
            TailBroken: The connection failed, or no data arrived for `silence` seconds.
        """
        assert self._session is not None
        if job_id in self._by_file:
            async with contextlib.aclosing(self._file(job_id, "stream", silence)) as texts:
                async for text in texts:
                    yield text
            return
        url = f"{self.address}/api/jobs/{job_id}/logs/tail"
        try:
            # Pings would not help: Ray's server reads nothing from this connection, so it never answers one.
            async with self._session.ws_connect(url, headers=self._headers, max_msg_size=0) as socket:
                while True:
                    message = await asyncio.wait_for(socket.receive(), silence)
                    if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                        yield message.data if isinstance(message.data, str) else message.data.decode(errors="replace")
                    elif socket.close_code in (aiohttp.WSCloseCode.OK, aiohttp.WSCloseCode.GOING_AWAY):
                        return
                    else:
                        raise TailBroken(f"it was closed with code {socket.close_code}")
        except TimeoutError:
            raise TailBroken(f"no data for {silence:g} s", silent=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise TailBroken(reason_of(error)) from None

    async def _call(self, method: str, path: str, **request: Any) -> Any:
        assert self._session is not None
        while True:
            try:
                async with self._session.request(
                    method, self.address + path, headers=self._headers, **request
                ) as response:
                    text = await response.text(errors="replace")
                    status, kind = response.status, response.content_type
                    found = await response.json() if status == 200 and kind == "application/json" and text else text
            except TimeoutError:
                raise self._absent("no answer in time") from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise self._absent(reason_of(error)) from None
            if status == 401 and self._token.value and not self._headers:
                self._headers = _bearer(self._token)
                continue
            if status != 200:
                raise self._refused(status, text, path)
            return found

    def _refused(self, status: int, text: str, path: str) -> MarinError:
        said = redact_string(text.strip()) if self._verbose else _last_words(text)
        if _NOT_UTF8 in text and path.endswith("/logs"):
            return NotText(said)
        if _TAKEN in text and not self._verbose:
            return InvalidRequest(f"the cluster refuses the request: {_taken(text)}")
        if status in (401, 403):
            return self._denied(status, said)
        if status == 404:
            return NotFound(said or f"{self.address}{path} does not exist")
        if status == 400:
            return InvalidRequest(f"the cluster refuses the request: {said}")
        if status == 413:
            return InvalidRequest(
                f"the cluster refuses the packed working directory as too large: {said}; leave files out "
                "(.gitignore), or keep them in a bucket"
            )
        if _NO_AGENT in text:
            return NotReady(f"the Ray cluster at {self.address} cannot start jobs yet: {said}")
        return Conflict(f"the cluster at {self.address} answers {status}: {said or 'without details'}")

    def _denied(self, status: int, said: str) -> Denied:
        token = self._token
        if not token.value:
            what = f"it requires a token, and no token was found ({token.origin})"
        elif status == 401 or self._headers:
            what = f"the token of {token.origin} is not the cluster's"
        else:
            what = "access is refused"
        return Denied(
            f"the Ray cluster at {self.address} ({self._origin}): {what}: {said}. Its token goes into "
            "~/.ray/auth_token, RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN"
        )

    def _absent(self, reason: str) -> Unavailable:
        return Unavailable(
            f"no Ray cluster answers at {redact_string(self.address)} ({self._origin}): {reason}. Open a connection "
            "first (`ray dashboard infra/marin-cluster.yaml` in another terminal), or name the cluster: "
            "--cluster NAME|FILE, or RAY_ADDRESS=http://HOST:8265"
        )


async def stop_quietly(api: JobsApi, job_id: str) -> str:
    """Request the stop of a job. Return why that failed; empty on success."""
    with contextlib.suppress(NotFound):
        try:
            await api.stop(job_id)
        except (Unavailable, Conflict, Denied, InvalidRequest) as error:
            return str(error)
    return ""


def _bearer(token: AuthToken) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.value}"} if token.value else {}


def _last_words(text: str) -> str:
    """Return the last non-empty line of an answer without markup, which is the error of a traceback."""
    lines = [line.strip() for line in text.splitlines() if _WORD.search(line)]
    if not lines or "<html" in text[:200].lower():
        return ""
    return redact_string(lines[-1][:_SHOWN])


def _taken(text: str) -> str:
    """Return Ray's message for a submission id that is taken."""
    line = next(line for line in text.splitlines() if _TAKEN in line)
    return redact_string(line.strip().removeprefix("ValueError: ")[:_SHOWN])
