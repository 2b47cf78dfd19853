"""What an attempt sees in place of what is shared, for each way in which a host can keep tasks apart."""

import pytest

from iris.worker.isolation.plan import IsolationMode, Mount, mounts_of, variables_of

OWN = "/layers/a"
BUNDLE = Mount("/b", "/b", "/layers/a/bundle", "compiled of /b")
ENVIRONMENT = Mount("/e", "/e", "/layers/a/environment", "compiled of /e")


@pytest.mark.parametrize(
    ("mode", "bundle", "environment", "mounts"),
    [
        (IsolationMode.OVERLAY, "/b", "/e", [BUNDLE, ENVIRONMENT]),
        (IsolationMode.OVERLAY, "", "/e", [ENVIRONMENT]),
        (IsolationMode.OVERLAY, "/b", "", [BUNDLE]),
        (IsolationMode.BIND, "/b", "/e", [Mount("/b", "/layers/a/copy"), Mount("/e", "/e")]),
        (IsolationMode.BIND, "/b", "", [Mount("/b", "/layers/a/copy")]),
        (IsolationMode.BIND, "", "/e", [Mount("/e", "/e")]),
        (IsolationMode.COPY, "/b", "/e", []),
        *((mode, "", "", []) for mode in IsolationMode),
    ],
)
def test_mounts(mode: IsolationMode, bundle: str, environment: str, mounts: list[Mount]) -> None:
    assert list(mounts_of(mode, bundle, environment, OWN, lambda tree: f"compiled of {tree}")) == mounts


def test_where_environments_are_verified_python_writes_nothing_into_them() -> None:
    assert variables_of(IsolationMode.COPY) == {"PYTHONDONTWRITEBYTECODE": "1"}
    assert variables_of(IsolationMode.OVERLAY) == variables_of(IsolationMode.BIND) == {}
