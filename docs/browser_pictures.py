"""Make the pictures of docs/browser.md: pages of sample runs in the system's Chromium.

uv run --group dev python docs/browser_pictures.py [--output docs/images]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
from pathlib import Path

from marin.browser.command import browser_app
from marin.browser.site import make_site
from rigging.web.login import Viewer
from rigging.web.serving import WebServer, bind
from support.marin.sample_runs import sample_root
from support.rigging.chromium import chromium

# Name, page, width, height, colour scheme.
PICTURES = (
    ("browser-run", "run?run=pretrain-3d4e5f&group=none", 1100, 760, "light"),
    ("browser-step", "step?path=checkpoints/tiny-aaaaaa&run=pretrain-0a1b2c", 1100, 620, "dark"),
    ("browser-phone", "runs", 400, 560, "light"),
)


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "images")
    output: Path = parser.parse_args().output
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "prefix")
        root.mkdir()
        sample_root(root, shards=10)
        site = make_site(str(root), f"{root}/experiments")
        bound = bind(0)
        app = browser_app(site, bound, None)
        server = WebServer(app, bound, site.stop)
        thread = threading.Thread(target=lambda: asyncio.run(server.run()))
        thread.start()
        try:
            with chromium() as browser:
                page = browser.new_page()
                page.goto(bound.url + app.state.web.login_path(Viewer("ada")))
                for name, place, width, height, scheme in PICTURES:
                    page.set_viewport_size({"width": width, "height": height})
                    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                    page.goto(f"{bound.url}/experiments/{place}")
                    page.screenshot(path=str(output / f"{name}.png"))
                    print(output / f"{name}.png")
        finally:
            server.stop()
            thread.join()


if __name__ == "__main__":
    main()
