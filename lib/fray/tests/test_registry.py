import sys
from importlib import metadata

import pytest

from fray import registry
from fray.backends.local import LocalClient
from fray.types import Entrypoint, JobRequest, ResourceConfig
from rigging.errors import InvalidRequest


@pytest.mark.parametrize("spec", ["pbs", "Local", "iris:", "iris://", "", "://x"])
def test_unknown_specs_are_refused_with_the_known_ones(spec: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"is not known; known: local, local://\?processes=1, ray, .*, iris://host:port"
    ):
        registry.connect(spec)


@pytest.mark.parametrize("address", ["here", "here:80", "?", "?processes=yes", "?cpus=3", "processes=1"])
def test_local_takes_options_and_no_address(address: str) -> None:
    with pytest.raises(InvalidRequest, match=r"accepts only options.*local://\?processes=1&max_threads=4"):
        registry.connect(f"local://{address}")


@pytest.mark.process
def test_options_of_local() -> None:
    with registry.connect("local://?processes=1&max_threads=2&admission=1") as client:  # type: ignore[attr-defined]
        pids: list[int] = []
        job = client.submit(JobRequest("apart", Entrypoint.from_callable(pids.append, [1])))
        assert job.wait(30) == "succeeded"
        assert pids == []  # the list of another process was appended to
        with pytest.raises(InvalidRequest, match="CPUs"):
            client.submit(JobRequest("huge", Entrypoint.from_binary("true"), ResourceConfig(cpu=100_000)))


def test_a_backend_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("elsewhere", "fray.backends.local", registry.ENTRY_POINTS)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == registry.ENTRY_POINTS else [])
    with registry.connect("elsewhere") as client:  # type: ignore[attr-defined]
        assert isinstance(client, LocalClient)
    assert "elsewhere" in registry.known_specs()
    with pytest.raises(InvalidRequest, match=r"'nowhere' is not known; known: .*, elsewhere, elsewhere://..."):
        registry.connect("nowhere")


def test_a_backend_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.Backend("far", "absent_package.client", ("far",), extra="far", needs="absent_package")
    assert backend.missing().startswith("absent_package is not installed: `uv pip install 'marin-fray[far]'`")
    monkeypatch.setattr(registry, "BACKENDS", (*registry.BACKENDS, backend))
    with pytest.raises(InvalidRequest, match=r"needs absent_package.*marin-fray\[far\]"):
        registry.connect("far")


def test_our_own_missing_module_is_not_blamed_on_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.Backend("far", "fray.backends.absent", ("far",), extra="far")
    monkeypatch.setattr(registry, "BACKENDS", (backend,))
    with pytest.raises(ModuleNotFoundError, match=r"fray.backends.absent"):
        registry.connect("far")
    assert "fray.backends.absent" not in sys.modules
