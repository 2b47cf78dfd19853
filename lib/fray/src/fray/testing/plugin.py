"""A pytest plugin: the fixtures `fray_client`, `fray_harness` and `fray_backend`, and the option `--fray-backend`.

A test that takes one of the fixtures runs once per chosen backend: those of `--fray-backend`, else those in its
module's `FRAY_BACKENDS` (names, or `pytest.param` with a name and marks), else `local`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.context import set_current_client
from fray.protocols import Client
from fray.testing.fixture import BackendFixture
from fray.testing.harness import HARNESSES, BackendHarness, load_harness, unknown_backend

pytest.register_assert_rewrite("fray.testing.contract")

_INSIDE_A_JOB = ("FRAY_CLIENT", "IRIS_JOB_ID", "IRIS_CONTROLLER_ADDRESS", "RAY_ADDRESS", "RAY_JOB_ID")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fray-backend`."""
    parser.getgroup("fray").addoption(
        "--fray-backend",
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="backends for tests that take fray_client: local, local-process, iris, ray, or "
        "package.module:Harness; may be repeated (default: FRAY_BACKENDS of the test's module, else local)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the requested backends before any test module is imported, and refuse unknown ones."""
    for name in chosen_backends(config):
        if name in HARNESSES:
            load_harness(name).prepare()
        elif ":" not in name:
            raise pytest.UsageError(f"--fray-backend: {unknown_backend(name)}")


def chosen_backends(config: pytest.Config) -> list[str]:
    """Return the names given on the command line, without duplicates."""
    given = [name for option in config.getoption("--fray-backend") for name in option.split(",") if name]
    return list(dict.fromkeys(given))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `fray_client` on each of its backends."""
    if "fray_harness" not in metafunc.fixturenames:
        return
    backends = chosen_backends(metafunc.config) or getattr(metafunc.module, "FRAY_BACKENDS", ["local"])
    metafunc.parametrize("fray_harness", backends, indirect=True, scope="session")


@pytest.fixture(scope="session")
def fray_harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackendHarness]:
    """The backend under test, started once per session."""
    harness = load_harness(request.param)
    with pytest.MonkeyPatch.context() as patch:
        for variable in _INSIDE_A_JOB:
            patch.delenv(variable, raising=False)
        harness.start(tmp_path_factory.mktemp("fray"))
        try:
            yield harness
        finally:
            harness.stop()


@pytest.fixture
def fray_client(fray_harness: BackendHarness) -> Iterator[Client]:
    """A client for one test, which `current_client()` also returns. After the test its jobs are stopped and it is shut
    down.
    """
    client = fray_harness.make_client()
    with set_current_client(client):
        try:
            yield client
        finally:
            client.shutdown(wait=False)


@pytest.fixture(scope="session")
def fray_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for jobs that is not a project, so no environment is built."""
    workspace = tmp_path_factory.mktemp("workspace")
    (workspace / "note.txt").write_text("from the workspace\n")
    return workspace


@pytest.fixture
def fray_backend(
    fray_harness: BackendHarness,
    fray_client: Client,
    fray_workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[BackendFixture]:
    """The tools of a contract test. The workspace is the current directory, which is sent to actors."""
    monkeypatch.chdir(fray_workspace)
    backend = BackendFixture(fray_harness, fray_client, tmp_path, fray_workspace)
    yield backend
    backend.stop_jobs()
