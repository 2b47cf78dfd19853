import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from iris.worker.paths import WorkPaths
from iris.worker.prepare.compiled import CompiledTrees
from iris.worker.processes import StartFailed

TREE, PYTHON = Path("/bundles/b1"), "/env/bin/python"


class Tools:
    """Makes the target, unless it is to fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.answer: tuple[bool, str] | Exception = (True, "")
        self.go = asyncio.Event()
        self.go.set()

    async def run(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> tuple[bool, str]:
        self.asked.append(argv)
        await self.go.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer[0]:
            os.mkdir(argv[-1])
        return self.answer


class Bench:
    def __init__(self, root: Path) -> None:
        self.paths = WorkPaths(root)
        self.paths.make()
        self.tools = Tools()
        self.trees = CompiledTrees(self.paths, self.tools, {})

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_the_second_start_has_it_compiled_and_later_ones_and_workers_get_it(bench: Bench) -> None:
    assert bench.trees.over(TREE, PYTHON) == ""
    await bench.settle()
    assert bench.tools.asked == [], "many run once"
    assert [bench.trees.over(TREE, PYTHON) for _ in range(3)] == [""] * 3
    await bench.settle()
    ((python, flag, program, tree, parts, target),) = bench.tools.asked
    assert (python, flag, tree) == (PYTHON, "-I", str(TREE))
    assert (Path(program).name, parts) == ("compile_tree.py", str(bench.paths.compiled / "parts"))
    assert bench.trees.over(TREE, PYTHON) == target
    assert Path(target).parent == bench.paths.compiled
    assert bench.trees.over(TREE, "/other/python") == "", "each Python has its own"
    assert bench.trees.over(Path("/bundles/b2"), PYTHON) == ""
    later = CompiledTrees(bench.paths, bench.tools, {})
    for _ in range(2):
        later.over(TREE, PYTHON)
    await bench.settle()
    assert later.over(TREE, PYTHON) == target
    assert len(bench.tools.asked) == 1


@pytest.mark.parametrize("answer", [(False, "no space"), StartFailed("the guardian is exiting")])
async def test_without_it_tasks_start_all_the_same(
    bench: Bench, answer: tuple[bool, str] | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bench.tools.answer = answer
    for _ in range(5):
        assert bench.trees.over(TREE, PYTHON) == ""
        await bench.settle()
    assert len(bench.tools.asked) == 1, "it is not tried again and again"
    assert ("/bundles/b1 cannot be compiled: no space" in caplog.text) == isinstance(answer, tuple)


async def test_what_is_being_compiled_is_given_up_at_the_end(bench: Bench) -> None:
    bench.tools.go.clear()
    for _ in range(2):
        bench.trees.over(TREE, PYTHON)
    await bench.settle()
    await asyncio.wait_for(bench.trees.close(), 20)
    bench.tools.go.set()
    await bench.settle()
    assert bench.trees.over(TREE, PYTHON) == ""
