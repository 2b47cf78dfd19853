"""A user's program whose values have the types that mypy and pyright, both strict, are to tell (see test_types.py)."""

from collections.abc import Iterator
from typing import Any, assert_type

import fray
from fray import Client, Entrypoint, JobHandle, JobRequest, LocalClient


def text_of(number: int) -> str:
    return str(number)


async def half_of(number: int) -> float:
    return number / 2


def jobs(client: Client) -> None:
    job = client.submit(JobRequest("text", Entrypoint.from_callable(text_of, [4])))
    assert assert_type(job, JobHandle[str]).result() == "4"
    awaited = client.submit(JobRequest("half", Entrypoint.from_callable(half_of, kwargs={"number": 4})))
    assert assert_type(awaited.result(), float) == 2.0
    bare: JobHandle = client.submit(JobRequest("two", Entrypoint.from_callable(text_of, [4]), replicas=2))
    assert assert_type(bare.result(), Any) == ["4", "4"]
    assert_type(Entrypoint.from_binary("true"), Entrypoint[Any])


def items(client: Client) -> None:
    assert list(assert_type(fray.map(text_of, [1, 2], client=client), Iterator[str])) == ["1", "2"]
    assert list(assert_type(fray.map(half_of, [1], client=client), Iterator[float])) == [0.5]
    either = fray.map(text_of, [1], client=client, return_exceptions=True)
    assert list(assert_type(either, Iterator[str | Exception])) == ["1"]


def main() -> None:
    with LocalClient() as client, fray.set_current_client(client):
        jobs(client)
        items(client)


if __name__ == "__main__":
    main()
