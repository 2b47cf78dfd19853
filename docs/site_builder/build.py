"""Build the documentation's site from docs/, the READMEs and the docstrings.

uv run --group docs python docs/build_site.py [--output DIR] [--serve]

The Markdown files are read as they lie in the repository: links among them become links of the site, links to its other
files plain text. A link that leads nowhere and every warning end the build. The site also has the Markdown of every
page (`executor.md` beside `executor/`) and `llms.txt`, which lists them.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from site_builder.api import PUBLIC_MODULES, api_pages
from site_builder.links import rewritten

ROOT: Final = Path(__file__).resolve().parents[2]

# The navigation: sections with pages, in order, by their paths in the repository. API stands for the generated pages.
# What is not listed comes after the section that its folder belongs to, under its own title.
API: Final = "API"
FOLDERS: Final = {
    "docs/tutorials": "Tutorials",
    "docs/examples": "Examples",
    "docs/explanation": "Explanation",
    "docs/reference": "Reference",
    "docs/contributing": "Contributing",
}
OTHERS: Final = "How to"
NAVIGATION: Final[Mapping[str, Mapping[str, str]]] = {
    "Start": {
        "marin": "README.md",
        "Installation": "docs/installation.md",
        "Your own project": "docs/own-project.md",
        "Cheat sheet": "docs/cheat-sheet.md",
    },
    "Tutorials": {
        "Steps, versions and paths": "docs/tutorials/executor_101.md",
        "Many values of one thing": "docs/tutorials/sweep.md",
        "Retries and failures": "docs/tutorials/retries_and_failures.md",
        "Inputs from another region": "docs/tutorials/mirrored_inputs.md",
        "A gang": "docs/tutorials/cpu_gang.md",
    },
    "Examples": {
        "All examples": "docs/examples/index.md",
    },
    "How to": {
        "Conventions of experiments": "docs/experiments.md",
        "Write experiments": "docs/executor.md",
        "Resources and priorities": "docs/resources.md",
        "Storage": "docs/storage.md",
        "Look at runs in a browser": "docs/browser.md",
        "Set up clusters": "docs/clusters.md",
        "Run on Google Cloud": "docs/gcp.md",
        "Run on your own hosts": "docs/manual.md",
        "Operate a cluster": "lib/iris/OPS.md",
        "Look at a cluster in a browser": "docs/dashboard.md",
        "Run on Ray": "docs/ray.md",
        "Run on Slurm": "docs/slurm.md",
        "Read data of other regions": "docs/mirror.md",
        "Simulate a cluster": "docs/simulation.md",
        "Move from other tools": "docs/how-to/moving-from.md",
        "Move in": "docs/migrating.md",
    },
    "Explanation": {
        "Versions": "docs/explanation/versions.md",
        "Content-addressed outputs": "docs/explanation/content-addressed-outputs.md",
        "Architecture": "docs/architecture.md",
        "Scheduling": "docs/scheduling.md",
        "Isolation of tasks": "docs/isolation.md",
        "Durability": "docs/durability.md",
        "Performance": "docs/performance.md",
        "Glossary": "docs/glossary.md",
    },
    "Reference": {
        "iris": "docs/iris-cli.md",
        "Clusters": "docs/reference/iris-clusters.md",
        "marin": "docs/marin-cli.md",
        "Runs": "docs/reference/runs.md",
        "iris query": "docs/query.md",
        "fray": "docs/fray.md",
        "Limits and usage of tasks": "docs/worker.md",
        "Container images": "docs/containers.md",
        "States": "docs/task-states.md",
        "Older callers": "docs/compatibility.md",
        "Changes": "CHANGELOG.md",
        API: API,
    },
    "Libraries": {
        "marin": "lib/marin/README.md",
        "fray": "lib/fray/README.md",
        "iris": "lib/iris/README.md",
        "rigging": "lib/rigging/README.md",
        "Cluster files": "infra/README.md",
    },
    "Contributing": {
        "Contributing": "CONTRIBUTING.md",
        "Add a backend": "docs/contributing/add-a-backend.md",
        "Add a CLI command": "docs/contributing/add-a-cli-command.md",
        "Add pages": "docs/contributing/add-pages.md",
        "Add a job option": "docs/contributing/add-a-job-option.md",
        "Add a lease store": "docs/contributing/add-a-lease-store.md",
        "Add a placeholder": "docs/contributing/add-a-placeholder.md",
        "Add a scheduling policy": "docs/contributing/add-a-scheduling-policy.md",
        "Add a task state": "docs/contributing/add-a-task-state.md",
        "Add an RPC": "docs/contributing/add-an-rpc.md",
        "Change the log format": "docs/contributing/change-the-log-format.md",
        "Hops": "docs/contributing/hops.md",
    },
}  # fmt: skip


def main() -> None:
    """Build, or build and serve on loopback until interrupted."""
    parser = argparse.ArgumentParser(description="Build the documentation's site.")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / "site", help="where it goes (default: build/site)"
    )
    parser.add_argument("--serve", action="store_true", help="show it on http://127.0.0.1:8000 instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        broken = stage(place)
        if broken:
            sys.exit("these links lead nowhere:\n  " + "\n  ".join(broken))
        verb = ["serve", "--dev-addr", "127.0.0.1:8000"] if options.serve else ["build", "--strict"]
        done = subprocess.run([sys.executable, "-m", "zensical", *verb], cwd=place, check=False)
        if done.returncode == 0 and not options.serve:
            add_markdown(place / "docs", place / "site")
            shutil.rmtree(options.output, ignore_errors=True)
            shutil.copytree(place / "site", options.output)
        sys.exit(done.returncode)


def stage(place: Path) -> list[str]:
    """Write the site's sources and its configuration into `place`; return the links that lead nowhere."""
    places = {path: _place(path) for path in _sources()}
    broken: list[str] = []
    for source, target in places.items():
        written = place / "docs" / target
        written.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copyfile(ROOT / source, written)
            continue
        text, lost = rewritten((ROOT / source).read_text(encoding="utf-8"), source, places, ROOT)
        written.write_text(text, encoding="utf-8")
        broken += lost
    for page in api_pages():
        written = place / "docs" / _api_place(page.library)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(page.text, encoding="utf-8")
    (place / "zensical.toml").write_text(_configuration(places), encoding="utf-8")
    return broken


def _sources() -> Iterator[Path]:
    yield from (Path(name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "infra/README.md"))
    yield from (path.relative_to(ROOT) for path in sorted((ROOT / "lib").glob("*/*.md")))
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in (".md", ".svg", ".png") and "site_builder" not in path.relative_to(ROOT).parts:
            yield path.relative_to(ROOT)


def navigation(pages: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Return the sections with all of these pages, each under its title; of API only the word."""
    sections = {section: dict(listed) for section, listed in NAVIGATION.items()}
    known = {page for listed in sections.values() for page in listed.values()}
    for page in pages:
        if page.suffix == ".md" and str(page) not in known:
            section = FOLDERS.get(str(page.parent), OTHERS)
            sections[section][_title(page)] = str(page)
    return {section: listed for section, listed in sections.items() if listed}


def add_markdown(staged: Path, site: Path) -> None:
    """Copy the staged Markdown of every page into the site, and write `llms.txt` beside it."""
    pages = list(_sources())
    for page in pages:
        if page.suffix == ".md":
            target = site / _place(page)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(staged / _place(page), target)
    (site / "llms.txt").write_text(llms_text(pages), encoding="utf-8")


def llms_text(pages: Iterable[Path]) -> str:
    """Return the list of all pages by section, in the format of https://llmstxt.org."""
    parts = ["# marin", "> Reproducible experiments on foundation models: steps, versions, jobs, clusters."]
    for section, listed in navigation(pages).items():
        lines = [f"- [{title}]({_place(Path(page))})" for title, page in listed.items() if page != API]
        parts.append("\n".join([f"## {section}", "", *lines]))
    return "\n\n".join(parts) + "\n"


def _title(page: Path) -> str:
    heading = re.search(r"^# (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1].replace("`", "") if heading else page.stem


def _place(source: Path) -> Path:
    if source == Path("README.md"):
        return Path("index.md")
    if source.parts[0] == "docs":
        return Path(*source.parts[1:])
    return Path(str(source).lower().replace("readme.md", "index.md"))


def _api_place(library: str) -> Path:
    return Path("reference", "api", f"{library}.md")


def _configuration(pages_of_site: Iterable[Path]) -> str:
    sections = []
    for section, pages in navigation(pages_of_site).items():
        shown: list[dict[str, str]] = []
        for title, page in pages.items():
            if page == API:
                shown += [{f"{library} (Python)": str(_api_place(library))} for library in PUBLIC_MODULES]
            else:
                shown.append({title: str(_place(Path(page)))})
        sections.append({section: shown})
    sources = [str(ROOT / "lib" / library / "src") for library in PUBLIC_MODULES]
    template = (Path(__file__).parent / "zensical.toml").read_text(encoding="utf-8")
    return template.replace('"@NAVIGATION@"', _toml(sections)).replace('"@SOURCES@"', _toml(sources))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
