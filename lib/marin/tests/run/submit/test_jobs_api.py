"""The answers of a cluster, and of what is none, each with its meaning."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from marin.run.auth_token import AuthToken
from marin.run.submit.jobs_api import JobsApi, NotReady, TailBroken, stop_quietly
from marin.run.submit.run_job import take_back
from rigging.errors import Conflict, Denied, InvalidRequest, MarinError, NotFound, Unavailable

NONE = AuthToken("", "nowhere", always=False)
Question = Callable[[JobsApi], Awaitable[Any]]


@contextlib.asynccontextmanager
async def answering(status: int, body: str, kind: str = "application/json") -> AsyncIterator[str]:
    """The address of a server that answers whatever it is asked in this way; not at all where the status is 0."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if status:
            head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n{body}".encode())
            await writer.drain()
        else:
            await ended.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            ended.set()


def ask(question: Question, status: int, body: str, kind: str = "application/json", token: AuthToken = NONE) -> Any:
    async def run() -> Any:
        patience = 30.0 if status else 0.05
        async with (
            answering(status, body, kind) as address,
            JobsApi(address, "here", token, connect_seconds=patience) as api,
        ):
            return await question(api)

    return asyncio.run(run())


def refusal(
    question: Question, status: int, body: str, kind: str = "application/json", token: AuthToken = NONE
) -> tuple[type[MarinError], str]:
    """The kind and the words of the error that such an answer is."""
    with pytest.raises(MarinError) as refused:
        ask(question, status, body, kind, token)
    return type(refused.value), str(refused.value)


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (0, "", Unavailable, "no answer in 0.1 s"),
        (200, "{}", Unavailable, "what answers there is no Ray cluster"),
        (200, "[]", Unavailable, "what answers there is no Ray cluster"),
        (200, "{", Unavailable, "no Ray cluster answers at"),
        (404, "", Unavailable, "what answers there has no Jobs API"),
        (502, "<html>Bad gateway</html>", Unavailable, "answers 502: nothing more"),
        (401, "", Denied, "it wants a token, and there is none"),
    ],
)
def test_what_is_no_cluster_is_told_from_one_that_wants_a_token(
    status: int, body: str, error: type[MarinError], said: str
) -> None:
    kind, words = refusal(lambda api: api.check(), status, body)
    assert kind is error
    assert said in words


def test_a_cluster_tells_its_version() -> None:
    assert ask(lambda api: api.check(), 200, '{"ray_version": "2.60.0"}') == "2.60.0"


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (400, "Traceback\nValueError: bad id", InvalidRequest, "the cluster refuses the request: ValueError: bad id"),
        (413, "too large", InvalidRequest, "so large when packed: too large; leave files out"),
        (404, "", NotFound, "/api/jobs/ is not there"),
        (403, "no", Denied, "there is none"),
        (500, "No available agent to submit job", NotReady, "has nothing to start jobs with yet"),
        (500, "broken", Conflict, "answers 500: broken"),
    ],
)
def test_each_refusal_of_a_job_has_its_kind_and_words(
    status: int, body: str, error: type[MarinError], said: str
) -> None:
    kind, words = refusal(lambda api: api.submit({"entrypoint": "true"}), status, body, "text/plain")
    assert kind is error
    assert said in words


def test_a_token_that_is_refused_is_named_by_where_it_is_from() -> None:
    token = AuthToken("secret-word", "RAY_AUTH_TOKEN", always=False)
    for status, said in ((401, "the token of RAY_AUTH_TOKEN is not the cluster's"), (403, "access is refused")):
        kind, words = refusal(lambda api: api.jobs(), status, "", token=token)
        assert kind is Denied
        assert said in words
        assert "secret-word" not in words


def test_answers_that_lack_what_is_usual_are_taken_as_they_are() -> None:
    assert ask(lambda api: api.jobs(), 200, '[{"a": 1}, 2]') == [{"a": 1}]
    assert ask(lambda api: api.jobs(), 200, "{}") == []
    assert ask(lambda api: api.submit({}), 200, '{"job_id": "j"}') == "j"
    assert ask(lambda api: api.logs("j"), 200, '{"logs": null}') == ""
    info = ask(lambda api: api.info("j"), 200, '{"status": "FAILED", "message": null, "driver_exit_code": "x"}')
    assert (info.status, info.message, info.exit_code, info.error_type, info.ended) == ("FAILED", "", None, "", True)
    assert ask(lambda api: api.stop("j"), 200, '{"stopped": false}') is False


def test_a_package_is_there_or_not() -> None:
    assert ask(lambda api: api.has_package("p"), 200, "", "text/plain") is True
    assert ask(lambda api: api.has_package("p"), 404, "", "text/plain") is False


@pytest.mark.parametrize(("status", "reason"), [(200, ""), (404, ""), (500, "answers 500"), (400, "refuses")])
def test_asking_quietly_for_an_end_tells_why_it_could_not_be_asked_for(status: int, reason: str) -> None:
    told = ask(lambda api: stop_quietly(api, "j"), status, "{}")
    assert reason in told
    assert bool(told) is bool(reason)


def test_a_log_that_cannot_be_followed_is_not_one_that_was_silent() -> None:
    async def follow(api: JobsApi) -> None:
        async for _ in api.tail("j", 5.0):
            pass

    with pytest.raises(TailBroken) as broken:
        ask(follow, 404, "")
    assert not broken.value.silent


class Interrupted:
    """A cluster where a submission was interrupted: it answers each request to stop the job in its turn."""

    shown_address = "http://h:1"

    def __init__(self, *answers: MarinError | None) -> None:
        self.answers = list(answers)

    async def stop(self, job_id: str) -> bool:
        answer = self.answers.pop(0) if self.answers else NotFound("unknown")
        if answer is not None:
            raise answer
        return True


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([None], "job j is stopped"),
        ([NotFound("unknown"), None], "job j is stopped"),
        ([], "nothing was submitted"),
        ([Unavailable("away")], "job j may run (away): `ray job stop --address http://h:1 j` stops it"),
    ],
)
def test_a_submission_that_was_interrupted_is_taken_back_as_far_as_can_be_known(
    answers: list[MarinError | None], told: str
) -> None:
    api: Any = Interrupted(*answers)
    assert asyncio.run(take_back(api, "j", look_seconds=0.0)) == told
    assert api.answers == []
