import sys

import pytest

from fray import registry
from fray.backends.local import LocalClient
from rigging.errors import InvalidRequest


def test_local_is_made_by_name() -> None:
    client = registry.connect("local")
    assert isinstance(client, LocalClient)
    client.shutdown()


@pytest.mark.parametrize("spec", ["slurm", "Local", "iris:", "iris://", "", "://x"])
def test_unknown_specs_are_refused_with_the_known_ones(spec: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"is not known; known: local, ray, ray://host:port, iris, iris://host:port"
    ):
        registry.connect(spec)


def test_local_takes_no_address() -> None:
    with pytest.raises(InvalidRequest, match=r"local://here.*takes no address"):
        registry.connect("local://here")


def test_a_backend_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.Backend("far", "absent_package.client", ("far",), extra="far")
    monkeypatch.setattr(registry, "BACKENDS", (*registry.BACKENDS, backend))
    with pytest.raises(InvalidRequest, match=r"needs absent_package.*marin-fray\[far\]"):
        registry.connect("far")


def test_our_own_missing_module_is_not_blamed_on_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.Backend("far", "fray.backends.absent", ("far",), extra="far")
    monkeypatch.setattr(registry, "BACKENDS", (backend,))
    with pytest.raises(ModuleNotFoundError, match=r"fray.backends.absent"):
        registry.connect("far")
    assert "fray.backends.absent" not in sys.modules
