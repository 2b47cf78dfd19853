"""The TPU's lock file goes when the work ends: whatever kind of function does it, and however it ends."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marin.utils import remove_tpu_lockfile_on_exit
from rigging.errors import InvalidRequest


@pytest.fixture
def lockfile(tmp_path: Path) -> Path:
    path = tmp_path / "libtpu_lockfile"
    path.touch()
    return path


@pytest.fixture
def decorate(lockfile: Path) -> Any:
    return remove_tpu_lockfile_on_exit(lockfile=str(lockfile))


def test_it_goes_in_each_form_and_after_an_error_which_is_kept(lockfile: Path, decorate: Any) -> None:
    @decorate
    def work(number: int) -> int:
        assert lockfile.exists()
        return number

    for _ in range(2):
        lockfile.touch()
        assert work(3) == 3
        assert not lockfile.exists()
    assert work.__name__ == "work"
    lockfile.touch()
    with pytest.raises(KeyError, match="mine"), decorate:
        raise KeyError("mine")
    assert not lockfile.exists()


def test_without_a_place_it_is_that_of_libtpu() -> None:
    @remove_tpu_lockfile_on_exit
    def bare() -> str:
        return "x"

    @remove_tpu_lockfile_on_exit()
    def called() -> str:
        return "y"

    assert (bare(), called()) == ("x", "y")


def test_one_that_stays_is_a_warning(lockfile: Path, caplog: pytest.LogCaptureFixture) -> None:
    lockfile.unlink()
    lockfile.mkdir()
    with remove_tpu_lockfile_on_exit(lockfile=str(lockfile)):
        pass
    assert "look busy" in caplog.text


def test_a_generators_lock_stays_until_its_body_has_run(lockfile: Path, decorate: Any) -> None:
    @decorate
    def count(first: int) -> Generator[int, int, str]:
        got = yield first
        assert lockfile.exists()
        yield got
        return "end"

    steps = count(1)
    assert next(steps) == 1
    assert lockfile.exists(), "it has not ended"
    assert steps.send(7) == 7
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == "end"
    assert not lockfile.exists()

    lockfile.touch()
    left = count(1)
    next(left)
    left.close()
    assert not lockfile.exists(), "it is left before its end"


def test_what_is_awaited_keeps_the_lock_until_its_end_and_gets_what_is_sent(lockfile: Path, decorate: Any) -> None:
    is_there = lockfile.exists
    seen: list[Any] = []

    @decorate
    async def work() -> bool:
        await asyncio.sleep(0)
        return is_there()

    @decorate
    async def echo() -> AsyncGenerator[Any, Any]:
        value: Any = "first"
        while value != "stop":
            try:
                value = yield value
            except ValueError as error:
                value = f"caught {error}"
            seen.append((value, is_there()))

    async def talk() -> list[Any]:
        stream = echo()
        heard = [await anext(stream), await stream.asend("more"), await stream.athrow(ValueError("this"))]
        with pytest.raises(StopAsyncIteration):
            await stream.asend("stop")
        return heard

    async def leave() -> None:
        stream = echo()
        await anext(stream)
        await stream.aclose()

    assert asyncio.run(work())
    assert not lockfile.exists()
    lockfile.touch()
    assert asyncio.run(talk()) == ["first", "more", "caught this"]
    assert seen == [("more", True), ("caught this", True), ("stop", True)]
    assert not lockfile.exists()
    lockfile.touch()
    asyncio.run(leave())
    assert not lockfile.exists()


def test_methods_of_each_kind_by_either_order(lockfile: Path, decorate: Any) -> None:
    # Above @staticmethod a call from an object had one argument too many; above @classmethod none worked.
    class Model:
        @decorate
        @staticmethod
        def outer_static(number: int) -> int:
            return number

        @staticmethod
        @decorate
        def inner_static(number: int) -> int:
            return number

        @decorate
        @classmethod
        def outer_class(cls, number: int) -> int:
            return number

        @property
        @decorate
        def inner_property(self) -> int:
            return 5

    model: Any = Model()
    for call in (
        *(model.outer_static, model.inner_static, model.outer_class, Model.outer_static, Model.outer_class),
        lambda _: model.inner_property,
    ):
        lockfile.touch()
        assert call(5) == 5
        assert not lockfile.exists()


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        # A property became a method without a word: `model.weights` was a bound method.
        (property(lambda self: 1), "is not a function; put it over one"),
        (5, "is not a function; put it over one"),
        (type("Model", (), {}), "Model is a class; put it over its methods"),
        (
            SimpleNamespace(remote=SimpleNamespace(__wrapped__=print)),
            "does not reveal a remote function's options; put it below @ray.remote",
        ),
    ],
    ids=["property", "number", "class", "remote"],
)
def test_what_is_no_function_is_refused_where_the_decorator_stands(thing: Any, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        remove_tpu_lockfile_on_exit(thing)
    assert said in str(refused.value)


def test_over_a_remote_function_it_keeps_what_ray_was_told() -> None:
    import ray

    def work() -> None: ...

    told = ray.remote(num_cpus=8, resources={"TPU": 4, "TPU-v4-8-head": 1}, max_calls=1)
    plain: Any = told(work)
    decorated: Any = remove_tpu_lockfile_on_exit(told(work))
    assert type(decorated) is type(plain)
    assert decorated._default_options == plain._default_options
    assert decorated.remote.__name__ == "work"
    with pytest.raises(InvalidRequest, match="is a class"):
        remove_tpu_lockfile_on_exit(ray.remote(type("Model", (), {})))
