"""A user's program whose values have the types that mypy and pyright, both strict, are to tell (see test_types.py)."""

import asyncio
from collections.abc import Iterator
from typing import Any, assert_type

import fray
from fray import Client, Entrypoint, JobHandle, JobRequest, LocalClient, ResourceConfig
from marin.execution import resolve_local_placeholders, this_output_path, versioned
from marin.execution.config_model import ConfigModel
from marin.execution.disk_cache import disk_cache, locked_disk_cache
from marin.execution.remote import remote


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


class Count(ConfigModel):
    number: int
    output_path: str


def steps() -> None:
    config = Count(number=versioned(4), output_path=this_output_path())
    assert assert_type(resolve_local_placeholders(config, "out").number, int) == 4


remote_text = remote(name="text", resources=ResourceConfig(cpu=1))(text_of)
remote_half = remote(half_of)


class Reader:
    @disk_cache
    def text(self, number: int) -> str:
        return str(number)

    @locked_disk_cache(output_path="kept")
    def kept(self, number: int) -> str:
        return str(number)


@disk_cache(output_path="here")
def here(number: int) -> str:
    return str(number)


cached_half = locked_disk_cache(half_of)


async def coroutines() -> None:
    assert assert_type(await cached_half(4), float) == 2.0


def functions() -> None:
    asyncio.run(coroutines())
    assert assert_type(remote_text(4), str) == assert_type(remote_text.named("other")(4), str) == "4"
    assert assert_type(remote_half(4), float) == 2.0
    assert assert_type(Reader().text(4), str) == assert_type(Reader().kept(4), str) == assert_type(here(4), str) == "4"


def main() -> None:
    with LocalClient() as client, fray.set_current_client(client):
        jobs(client)
        items(client)
        functions()
        steps()


if __name__ == "__main__":
    main()
