"""docs/installation.md, as it is written there: in a clone of this repository, and with the system's own Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.packaging.user import REPOSITORY, Outsider

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(900)]

PAGE = "docs/installation.md"
NO_NETWORK = {
    "UV_OFFLINE": "1", "PIP_NO_INDEX": "1", "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9",
}  # fmt: skip


def section(heading: str) -> list[str]:
    found = [block.text for block in blocks_of(PAGE) if block.heading == heading]
    assert found, heading
    return found


def clone(outsider: Outsider) -> Path:
    """What git tracks here, as a checkout of its own."""
    outsider.run(["git", "clone", "--quiet", "--depth", "1", f"file://{REPOSITORY}", "checkout"])
    return outsider.root / "checkout"


def managed_python() -> str | None:
    """The system's Python, where pip refuses to touch it."""
    for place in ("/usr/bin/python3", "/usr/local/bin/python3"):
        mark = "sysconfig.get_path('stdlib') + '/EXTERNALLY-MANAGED'"
        asked = f"import os, sysconfig, venv, ensurepip; print(os.path.exists({mark}))"
        if os.path.exists(place):
            told = subprocess.run([place, "-c", asked], capture_output=True, text=True, check=False)
            if told.stdout.strip() == "True":
                return place
    return None


def test_uv_beside_the_system_s_python(outsider: Outsider) -> None:
    python = managed_python()
    if python is None:
        pytest.skip("NOT TESTED: no Python of the system here is externally managed")
    programs = outsider.root / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(python)
    (programs / "pip").write_text(f'#!/bin/sh\nexec {python} -m pip "$@"\n')
    (programs / "pip").chmod(0o755)
    outsider.path = [programs]
    plain, _, in_environment, in_home = section("uv")
    with pytest.raises(AssertionError, match="externally-managed-environment"):
        outsider.run(plain)
    for way in (in_environment, in_home):
        told = outsider.run(f"{way}\ncommand -v uv")
        home = str(outsider.root / "home")
        assert any(line.startswith(home) and line.endswith("/uv") for line in told.splitlines()), (
            "this uv, and no other"
        )


def test_marin_in_a_checkout_and_elsewhere(outsider: Outsider) -> None:
    place = clone(outsider)
    in_checkout, elsewhere = section("marin")
    outsider.extra["UV_NO_DEFAULT_GROUPS"] = "1"  # the tools of the tests: large, and not needed here
    told = outsider.run(in_checkout, place)
    assert "iris, version" in told
    assert "4950" in told
    assert "iris, version" in outsider.run(elsewhere, place)
    outsider.run([str(place / ".venv" / "bin" / "iris"), "cluster", "stop", "--force"])


def test_without_a_network(outsider: Outsider) -> None:
    place = clone(outsider)
    outsider.path = [Path(sys.executable).parent]
    outsider.extra["UV_NO_DEFAULT_GROUPS"] = "1"
    from_cache, prepare, install = section("Without a network")
    outsider.run("uv sync --locked", place)  # now the cache has it all
    outsider.run("rm -rf .venv", place)
    outsider.extra.update(NO_NETWORK)
    assert "4950" in outsider.run(from_cache, place)
    for name in NO_NETWORK:
        del outsider.extra[name]
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        prepare = prepare.replace("python3 -m pip download", "uvx --quiet --from pip pip download")
    outsider.run(prepare, place)
    outsider.extra.update({**NO_NETWORK, "UV_CACHE_DIR": str(outsider.root / "empty-cache")})
    assert "iris, version" in outsider.run(install, place)
