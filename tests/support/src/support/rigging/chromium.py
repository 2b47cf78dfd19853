"""A real browser for tests of pages: the system's Chromium, driven by playwright; accessibility audits by axe-core."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_ARGUMENTS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
#: Names a folder for screenshots; without it none are kept.
SCREENSHOTS_VARIABLE: Final = "PAGES_SCREENSHOTS"
#: Width and colour scheme of each screenshot.
VIEWS: Final = tuple((width, scheme) for width in (1280, 400) for scheme in ("light", "dark"))
SCHEMES: tuple[Literal["dark"], Literal["light"]] = ("dark", "light")
_SERIOUS: Final = ("serious", "critical")
_AXE: Final = Path(__file__).parents[4] / "vendored" / "axe.min.js"


def chromium_path() -> str | None:
    """Return the path of the system's Chromium; None if not installed (`apt-get install chromium`)."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Context manager: yield a headless browser."""
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    if path is None:
        raise FileNotFoundError("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    from playwright.sync_api import expect

    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)
    yield context.new_page()
    context.close()


@dataclass
class Watched:
    """Errors on a page's console, exceptions of its scripts, and requests to other servers."""

    problems: list[str] = field(default_factory=list)


def watch(page: Page, origin: str) -> Watched:
    """Record errors in a page from now on. `origin` is the only allowed server."""
    watched = Watched()
    page.on("console", lambda said: watched.problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: watched.problems.append(str(error)))

    def check(request: Any) -> None:
        if not request.url.startswith((origin, "data:", "about:")):
            watched.problems.append(f"a request to {request.url}")

    page.on("request", check)
    return watched


def serious_findings(page: Page) -> list[str]:
    """Return the serious findings of `axe.min.js` in a page."""
    # Not by a script element, which the page's policy would refuse.
    page.evaluate(_AXE.read_text(encoding="utf-8") + "; undefined")
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{item['id']} ({item['impact']}): {item['help']}: {[node['html'][:200] for node in item['nodes'][:3]]}"
        for item in found
        if item["impact"] in _SERIOUS
    ]


# The elements that a keyboard must reach, in order; and where the focus is, with whether one sees it.
_REACHABLE: Final = """() => {
  const which = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
  window.walked = [...document.querySelectorAll(which)].filter((element) =>
    element.tabIndex >= 0 && !element.disabled && element.checkVisibility({ visibilityProperty: true }));
  return walked.length;
}"""
_FOCUSED: Final = """() => {
  const element = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  const box = element.querySelector(":scope > rect");
  const isSeen = outlineStyle !== "none" && parseFloat(outlineWidth) > 0
    || box && getComputedStyle(box).strokeWidth === "4px";
  const { top, bottom } = element.getBoundingClientRect();
  const isOnScreen = bottom > 0 && top < innerHeight;
  const name = element.outerHTML.slice(0, 120);
  const problem = !isSeen ? "no visible focus: " : !isOnScreen ? "off the screen: " : "";
  return [walked.indexOf(element), problem && problem + name, name];
}"""


def tab_problems(page: Page, most: int = 80) -> list[str]:
    """Walk through a fresh page by Tab. Return the elements out of order, and those without a visible focus.

    Args:
        page: The page.
        most: Walk over no more elements.
    """
    problems: list[str] = []
    place = -1
    last = min(page.evaluate(_REACHABLE), most) - 1
    while place < last:
        page.keyboard.press("Tab")
        found, problem, name = page.evaluate(_FOCUSED)
        if found == -1 and name.startswith("<pre"):
            continue  # one that scrolls
        if found != place + 1:
            return [*problems, f"after element {place}, Tab goes to {found}: {name}"]
        place = found
        problems += [problem] if problem else []
    return problems


def screenshots(page: Page, name: str, *, full_page: bool = True) -> list[Path]:
    """Write screenshots of a page in each of `VIEWS` to the folder PAGES_SCREENSHOTS. Return their files."""
    folder = os.environ.get(SCREENSHOTS_VARIABLE)
    if not folder:
        return []
    Path(folder).mkdir(parents=True, exist_ok=True)
    files = []
    for width, scheme in (*VIEWS, VIEWS[0]):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        file = Path(folder, f"{name}-{width}-{scheme}.png")
        if file not in files:
            page.screenshot(path=str(file), full_page=full_page)
            files.append(file)
    return files
