"""Make the picture of docs/how-to/notebooks.md: its first two cells run in a kernel, drawn in the system's Chromium.

uv run --group dev --with nbconvert python docs/notebook_picture.py [--output docs/images/examples/notebook.png]
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from support.rigging.chromium import chromium

PAGE = Path(__file__).parent / "how-to" / "notebooks.md"
CELLS = 2


def main() -> None:
    """Run the cells with storage of their own, and draw them with their output."""
    parser = argparse.ArgumentParser(description="Draw cells of the page on notebooks.")
    parser.add_argument("--output", type=Path, default=PAGE.parents[1] / "images" / "examples" / "notebook.png")
    output: Path = parser.parse_args().output
    code = re.findall(r"^```python\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[:CELLS]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in code])
    with tempfile.TemporaryDirectory() as folder:
        own = dict.fromkeys(("MARIN_PREFIX", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"), folder)
        NotebookClient(notebook, timeout=100, kernel_name="python3").execute(env={**os.environ, **own})
        page, _ = HTMLExporter().from_notebook_node(notebook)
        page = re.sub(r"<script\b.*?</script>", "", page.replace(folder, "/tmp/marin"), flags=re.DOTALL)
    with chromium() as browser:
        view = browser.new_page(viewport={"width": 1000, "height": 200})
        view.set_content(page)
        view.screenshot(path=output, full_page=True)


if __name__ == "__main__":
    main()
