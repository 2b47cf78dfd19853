"""The documentation's site: links, navigation, and a reference in which every public name is."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.python_tools.uv import uv_program
from site_builder.api import PUBLIC_MODULES, api_pages, public_names
from site_builder.build import add_markdown, navigation, stage
from site_builder.links import rewritten
from tests.docs.blocks import REPOSITORY, blocks_of
from tests.docs.test_registry import pages


def test_no_link_leads_nowhere_and_every_page_is_there(tmp_path: Path) -> None:
    assert stage(tmp_path) == []
    listed = {page for section in navigation(map(Path, pages())).values() for page in section.values()}
    assert listed >= set(pages())
    add_markdown(tmp_path / "docs", tmp_path / "site")
    links = re.findall(r"\]\((.*?)\)", (tmp_path / "site" / "llms.txt").read_text())
    staged = {str(path.relative_to(tmp_path / "docs")) for path in (tmp_path / "docs").rglob("*.md")}
    assert set(links) == {page for page in staged if not page.startswith("reference/api/")}
    assert all((tmp_path / "site" / link).is_file() for link in links)
    assert 'title = "' not in (tmp_path / "zensical.toml").read_text()
    assert "@" not in (tmp_path / "zensical.toml").read_text().partition("\n")[2].replace("@media", "")


def test_links_are_those_of_the_site() -> None:
    source = Path("docs/a.md")
    places = {source: Path("a.md"), Path("README.md"): Path("index.md"), Path("docs/deep/b.md"): Path("deep/b.md")}
    text = "[home](../README.md#start) [b](deep/b.md) [code](../conftest.py) [`c`](../conftest.py) [gone](gone.md)\n"
    fence = "```text\n[x](gone.md)\n```\n"
    made, broken = rewritten(text + fence, source, places, REPOSITORY)
    assert made == "[home](index.md#start) [b](deep/b.md) code (`conftest.py`) `c` gone (`docs/gone.md`)\n" + fence
    assert broken == ["docs/a.md: gone.md"]


def imported(text: str) -> Iterator[str]:
    """Names that a program takes from our libraries, with their modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PUBLIC_MODULES:
            yield from (f"{node.module}.{name.name}" for name in node.names)


# Programs for those who change the libraries; what they import is not for users.
FOR_CONTRIBUTORS = "docs/contributing/"
# Modules that a page of the reference names, but not their names one by one.
BY_NAME_ONLY = (
    "fray.testing.contract.*",
    "fray.mirror",
    "rigging.mirror.MirrorFileSystem",
    "iris.runtime.jax_init.initialize_jax",
)


def test_what_users_are_shown_is_in_the_reference() -> None:
    covered = {name for page in api_pages() for name in page.covered}
    covered |= {module for modules in PUBLIC_MODULES.values() for module in modules}
    programs = {str(path): path.read_text() for path in (REPOSITORY / "experiments").rglob("*.py")}
    for page in pages():
        if not page.startswith(FOR_CONTRIBUTORS):
            programs |= {f"{page}:{b.line}": b.text for b in blocks_of(page) if b.language == "python"}
    shown = {name: where for where, text in programs.items() for name in imported(text)}
    assert len(shown) > 30
    lacking = {name: where for name, where in shown.items() if name not in covered and name not in BY_NAME_ONLY}
    assert lacking == {}, "add the module to docs/site_builder/api.py, or show a public name"


def test_every_public_name_has_its_place() -> None:
    made = {page.library: page for page in api_pages()}
    assert set(made) == set(PUBLIC_MODULES)
    for library, modules in PUBLIC_MODULES.items():
        for module in modules:
            names = public_names(module)
            assert names, module
            assert {f"{module}.{name}" for name in names} <= made[library].covered


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [uv_program(), "run", "--isolated", "--frozen", "--no-default-groups", "--group", "docs", "python"]
    done = subprocess.run(
        [*command, "docs/build_site.py", "--output", str(tmp_path / "site")],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=380, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "griffe:" not in done.stdout + done.stderr, "a docstring says what its function does not have"
    assert (tmp_path / "site" / "index.html").exists()
    for page in api_pages():
        text = (tmp_path / "site" / "reference" / "api" / page.library / "index.html").read_text()
        without = [
            name
            for name in page.covered
            if f'id="{name}"' not in text and f"#{name}" not in text and f">{name.rpartition('.')[2]}<" not in text
        ]
        assert without == []
