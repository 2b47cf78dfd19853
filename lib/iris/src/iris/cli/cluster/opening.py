"""Opens a link that signs in, without a process list that shows it."""

import html
import os
import webbrowser
from pathlib import Path
from typing import Final

_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={url}">
<meta name="referrer" content="no-referrer">
<title>iris</title>
<a href="{url}">Go on to the cluster's pages</a>
"""


def open_privately(url: str, folder: Path) -> None:
    """Open a link in the user's browser, by a file that only this user can read and that leads there.

    The browser's command line has the file's name: any user of the machine sees command lines, and could be the first
    to use a link that is good once.

    Args:
        url: The link.
        folder: Where the file is written, over that of the time before; made where it is missing.

    Raises:
        OSError: The file cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "dashboard-link.html"
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(_PAGE.format(url=html.escape(url)))
    webbrowser.open(path.absolute().as_uri())
