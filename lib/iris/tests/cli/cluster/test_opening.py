"""The link of the cluster's pages signs in whoever uses it first."""

import html
import os
import subprocess
import sys
from pathlib import Path

URL = "http://127.0.0.1:8787/login?token=abc&next=/jobs"
PROGRAM = f"""
import sys
from pathlib import Path
from iris.cli.cluster.opening import open_privately
open_privately({URL!r}, Path(sys.argv[1]))
"""


def test_a_command_line_never_has_the_link_and_only_its_user_reads_it(tmp_path: Path) -> None:
    seen, folder = tmp_path / "seen", tmp_path / "state"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >> {seen}\n')
    browser.chmod(0o755)
    for _ in range(2):
        environment = {**os.environ, "BROWSER": f"{browser} %s"}
        subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], env=environment, check=True, timeout=60)
    (shown, again) = seen.read_text().splitlines()
    assert shown == again == (folder / "dashboard-link.html").as_uri()
    [page] = folder.iterdir()
    assert page.stat().st_mode & 0o777 == 0o600
    assert html.escape(URL) in page.read_text()
