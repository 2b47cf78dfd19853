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


def is_there(path: Path) -> bool:
    return path.exists()


def test_it_goes_in_each_form(lockfile: Path) -> None:
    @remove_tpu_lockfile_on_exit(lockfile=str(lockfile))
    def work(number: int) -> int:
        assert lockfile.exists()
        return number

    for _ in range(2):
        lockfile.touch()
        assert work(3) == 3
        assert not lockfile.exists()
    assert work.__name__ == "work"
    lockfile.touch()
    with remove_tpu_lockfile_on_exit(lockfile=str(lockfile)):
        assert lockfile.exists()
    assert not lockfile.exists()


def test_without_a_place_it_is_that_of_libtpu() -> None:
    @remove_tpu_lockfile_on_exit
    def bare() -> str:
        return "x"

    @remove_tpu_lockfile_on_exit()
    def called() -> str:
        return "y"

    assert (bare(), called()) == ("x", "y")


def test_it_goes_after_an_error_which_is_kept(lockfile: Path) -> None:
    with pytest.raises(KeyError, match="mine"), remove_tpu_lockfile_on_exit(lockfile=str(lockfile)):
        raise KeyError("mine")
    assert not lockfile.exists()


def test_one_that_stays_is_a_warning(lockfile: Path, caplog: pytest.LogCaptureFixture) -> None:
    lockfile.unlink()
    lockfile.mkdir()
    with remove_tpu_lockfile_on_exit(lockfile=str(lockfile)):
        pass
    assert "look busy" in caplog.text


def test_a_generators_lock_stays_until_its_body_has_run(lockfile: Path) -> None:
    @remove_tpu_lockfile_on_exit(lockfile=str(lockfile))
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


def test_a_coroutines_lock_stays_until_it_was_awaited(lockfile: Path) -> None:
    @remove_tpu_lockfile_on_exit(lockfile=str(lockfile))
    async def work() -> bool:
        await asyncio.sleep(0)
        return is_there(lockfile)

    assert asyncio.run(work())
    assert not lockfile.exists()


def test_an_async_generators_lock_stays_until_its_end_and_all_that_is_sent_arrives(lockfile: Path) -> None:
    seen: list[Any] = []

    @remove_tpu_lockfile_on_exit(lockfile=str(lockfile))
    async def echo() -> AsyncGenerator[Any, Any]:
        value: Any = "first"
        while value != "stop":
            try:
                value = yield value
            except ValueError as error:
                value = f"caught {error}"
            seen.append((value, is_there(lockfile)))

    async def talk() -> list[Any]:
        stream = echo()
        heard = [await anext(stream), await stream.asend("more"), await stream.athrow(ValueError("this"))]
        with pytest.raises(StopAsyncIteration):
            await stream.asend("stop")
        return heard

    assert asyncio.run(talk()) == ["first", "more", "caught this"]
    assert seen == [("more", True), ("caught this", True), ("stop", True)]
    assert not lockfile.exists()

    lockfile.touch()

    async def leave() -> None:
        stream = echo()
        await anext(stream)
        await stream.aclose()

    asyncio.run(leave())
    assert not lockfile.exists()


def test_methods_of_each_kind_by_either_order(lockfile: Path) -> None:
    # Above @staticmethod a call from an object had one argument too many; above @classmethod none worked.
    decorate = remove_tpu_lockfile_on_exit(lockfile=str(lockfile))

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
    for call in (model.outer_static, model.inner_static, model.outer_class, Model.outer_static, Model.outer_class):
        lockfile.touch()
        assert call(5) == 5
        assert not lockfile.exists()
    lockfile.touch()
    assert model.inner_property == 5
    assert not lockfile.exists()


def test_what_is_no_function_is_refused_where_the_decorator_stands() -> None:
    # A property became a method without a word: `model.weights` was a bound method.
    for thing in (property(lambda self: 1), 5):
        with pytest.raises(InvalidRequest, match="is no function; put it over one"):
            remove_tpu_lockfile_on_exit(thing)  # type: ignore[call-overload]


def test_classes_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="Model is a class; put it over those methods"):

        @remove_tpu_lockfile_on_exit
        class Model:
            pass


def test_over_a_remote_function_it_keeps_what_ray_was_told() -> None:
    import ray

    @remove_tpu_lockfile_on_exit
    @ray.remote(num_cpus=8, resources={"TPU": 4, "TPU-v4-8-head": 1}, max_calls=1)
    def work() -> None: ...

    @ray.remote(num_cpus=8, resources={"TPU": 4, "TPU-v4-8-head": 1}, max_calls=1)
    def plain() -> None: ...

    decorated: Any = work
    assert type(decorated) is type(plain)
    assert decorated._default_options == plain._default_options  # type: ignore[attr-defined]
    assert decorated.remote.__name__ == "work"
    with pytest.raises(InvalidRequest, match="is a class"):
        remove_tpu_lockfile_on_exit(ray.remote(type("Model", (), {})))


def test_a_remote_function_that_does_not_tell_its_options_is_refused() -> None:
    def remote() -> None: ...

    remote.__wrapped__ = remote  # type: ignore[attr-defined]
    with pytest.raises(InvalidRequest, match=r"does not tell a remote function's options; put it below @ray\.remote"):
        remove_tpu_lockfile_on_exit(SimpleNamespace(remote=remote))
