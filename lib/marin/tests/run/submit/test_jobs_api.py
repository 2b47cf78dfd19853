"""The answers of a cluster, and of what is none, each with its meaning."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from marin.run.submit.jobs_api import JobsApi, NotReady, stop_quietly
from marin.run.submit.log_file import TailBroken
from marin.run.submit.run_job import take_back
from rigging.errors import Conflict, Denied, InvalidRequest, MarinError, NotFound, Unavailable
from rigging.ray_token import AuthToken

NONE = AuthToken("", "nowhere", always=False)
TAKEN = "Traceback:\n  raise ValueError(\nValueError: Job with submission_id j exists.\n.\n"
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


def ask(
    question: Question, status: int, body: str, kind: str = "application/json", token: AuthToken = NONE,
    verbose: bool = False,
) -> Any:  # fmt: skip
    async def run() -> Any:
        patience = 30.0 if status else 0.05
        async with (
            answering(status, body, kind) as address,
            JobsApi(address, "here", token, connect_seconds=patience, verbose=verbose) as api,
        ):
            return await question(api)

    return asyncio.run(run())


def test_answers_are_taken_as_they_are_also_when_they_lack_what_is_usual() -> None:
    assert ask(lambda api: api.check(), 200, '{"ray_version": "2.60.0"}') == "2.60.0"
    assert [ask(lambda api: api.has_package("p"), status, "", "text/plain") for status in (200, 404)] == [True, False]
    assert ask(lambda api: api.jobs(), 200, '[{"a": 1}, 2]') == [{"a": 1}]
    assert ask(lambda api: api.jobs(), 200, "{}") == []
    assert ask(lambda api: api.submit({}), 200, '{"job_id": "j"}') == "j"
    assert ask(lambda api: api.logs("j"), 200, '{"logs": null}') == ""
    info = ask(lambda api: api.info("j"), 200, '{"status": "FAILED", "message": null, "driver_exit_code": "x"}')
    assert (info.status, info.message, info.exit_code, info.error_type, info.ended) == ("FAILED", "", None, "", True)
    assert ask(lambda api: api.stop("j"), 200, '{"stopped": false}') is False


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
def test_an_interrupted_submission_is_taken_back_as_far_as_can_be(answers: list[MarinError | None], told: str) -> None:
    api: Any = Interrupted(*answers)
    assert asyncio.run(take_back(api, "j", look_seconds=0.0)) == told
    assert api.answers == []


@pytest.mark.parametrize(
    ("question", "status", "body", "error", "said"),
    [
        ("check", 0, "", Unavailable, "no answer in 0.1 s"),
        ("check", 200, "{}", Unavailable, "the server there is not a Ray cluster"),
        ("check", 200, "[]", Unavailable, "the server there is not a Ray cluster"),
        ("check", 200, "{", Unavailable, "no Ray cluster answers at"),
        ("check", 404, "", Unavailable, "the server there has no Jobs API"),
        ("check", 502, "<html>Bad gateway</html>", Unavailable, "answers 502: without details"),
        ("check", 401, "", Denied, "it requires a token, and no token was found"),
        ("submit", 400, "Traceback\nValueError: bad id", InvalidRequest, "refuses the request: ValueError: bad id"),
        (
            "submit",
            413,
            "too large",
            InvalidRequest,
            "packed working directory as too large: too large; leave files out",
        ),
        ("submit", 404, "", NotFound, "/api/jobs/ does not exist"),
        ("submit", 403, "no", Denied, "no token was found"),
        ("submit", 500, "No available agent to submit job", NotReady, "cannot start jobs yet"),
        ("submit", 500, "broken", Conflict, "answers 500: broken"),
        ("submit", 500, TAKEN, Conflict, "answers 500: ValueError: Job with submission_id j exists."),
        ("submit", 500, "...\n7\n", Conflict, "answers 500: without details"),
        ("verbose", 500, TAKEN, Conflict, f"answers 500: {TAKEN.strip()}"),
        ("secret", 401, "", Denied, "the token of RAY_AUTH_TOKEN is not the cluster's"),
        ("secret", 403, "", Denied, "access is refused"),
    ],
)
def test_kinds_and_words_of_refusals(question: str, status: int, body: str, error: type[MarinError], said: str) -> None:
    questions: dict[str, Question] = {
        "check": lambda api: api.check(),
        "submit": (submit := lambda api: api.submit({"entrypoint": "true"})),
        "verbose": submit,
        "secret": lambda api: api.jobs(),
    }
    token = AuthToken("secret-word", "RAY_AUTH_TOKEN", always=False) if question == "secret" else NONE
    kind = "text/plain" if question in ("submit", "verbose") else "application/json"
    with pytest.raises(MarinError) as refused:
        ask(questions[question], status, body, kind, token, question == "verbose")
    assert type(refused.value) is error
    assert said in str(refused.value)
    assert "secret-word" not in str(refused.value)
