import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import uv

from support.iris.async_tests import pytest_pyfunc_call, runner
from support.iris.packages import make_wheel
from support.iris.worker_fixtures import FakeController, InProcessWorker

__all__ = ["pytest_pyfunc_call", "runner"]


@pytest.fixture
def controller(runner: asyncio.Runner) -> Iterator[FakeController]:
    controller = FakeController()
    runner.run(controller.start())
    yield controller
    runner.run(controller.stop())


@pytest.fixture
def worker(runner: asyncio.Runner, controller: FakeController, tmp_path: Path) -> Iterator[InProcessWorker]:
    """A worker that is connected to the controller, with real processes."""
    worker = runner.run(InProcessWorker.start(tmp_path / "work", controller, dict(os.environ)))
    runner.run(controller.until(lambda: controller.hellos))
    yield worker
    runner.run(worker.close())


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that any user can access, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="iris-open-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


ROOT = """
[project]
name = "shop"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["my-till", "third"]

[tool.uv]
package = false

[tool.uv.workspace]
members = ["lib/*"]

[tool.uv.sources]
my-till = { workspace = true }
third = { path = "vendor/third-1.0-py3-none-any.whl" }
"""

TILL = """
[project]
name = "my-till"
version = "2.5"
requires-python = ">=3.11"

[project.scripts]
till = "till.main:run"

[project.entry-points."shop.plugins"]
coins = "till.main:Coins"

[build-system]
requires = ["backend-that-does-not-exist"]
build-backend = "backend_that_does_not_exist"
"""


@pytest.fixture(scope="session")
def workspace_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | bytes]:
    """Return the files of a locked uv workspace: a root, one member, and two third-party wheels."""
    root = tmp_path_factory.mktemp("workspace")
    make_wheel(root / "vendor/third-1.0-py3-none-any.whl", "third", "1.0", {"third.py": "VALUE = 3\n"})
    make_wheel(root / "vendor/turbo-1.0-py3-none-any.whl", "turbo", "1.0", {"turbo.py": "VALUE = 'fast'\n"})
    files = {
        "pyproject.toml": ROOT,
        "lib/till/pyproject.toml": TILL,
        "lib/till/src/till/__init__.py": "",
        "lib/till/src/till/main.py": "class Coins: pass\ndef run():\n    print('till runs')\n    return 4\n",
        "jobs/__init__.py": "",
        "jobs/hello.py": "import third, till.main\nprint('hello', third.VALUE)\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run([uv.find_uv_bin(), "lock", "--offline", "-q"], cwd=root, check=True)
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
