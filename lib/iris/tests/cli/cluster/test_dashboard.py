"""The link of the cluster's pages signs in whoever uses it first."""

import html
import webbrowser
from pathlib import Path

import pytest

from iris.cli.cluster.dashboard import open_privately

URL = "http://127.0.0.1:8787/login?token=abc&next=/jobs"


def test_a_browser_is_given_a_file_that_only_its_user_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(webbrowser, "open", seen.append)
    folder = tmp_path / "state"
    for _ in range(2):
        open_privately(URL, folder)
    assert seen == [(folder / "dashboard-link.html").as_uri()] * 2, "any user of the machine sees command lines"
    [page] = folder.iterdir()
    assert (page.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert html.escape(URL) in page.read_text()
