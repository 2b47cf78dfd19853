"""Make the pictures of docs/browser.md: pages of sample runs in the system's Chromium.

uv run --group dev python docs/browser_pictures.py [--output docs/images]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from random import Random
from typing import Any

from marin.browser.command import browser_app
from marin.browser.site import make_site
from rigging.web.login import Viewer
from rigging.web.serving import WebServer, bind
from support.marin.recorded_runs import RecordedStorage, ended, started, step_ended
from support.rigging.chromium import chromium

# Name, page, width, height, colour scheme, selector to wait for.
PICTURES = (
    ("browser-run", "run?run=tiny-000004", 1100, 760, "light", "#graph"),
    ("browser-compare", "compare?run=tiny-000001&run=tiny-000002&run=tiny-000003", 1100, 760, "light", "canvas"),
    ("browser-step", "step?path=train-000001&run=tiny-000001", 1100, 620, "dark", "canvas"),
    ("browser-phone", "runs", 400, 640, "light", "#runs tbody tr"),
)
DAY = 86_400


def record(root: Path) -> None:
    """Record four runs of a small pipeline: three learning rates, and one at which the loss is not finite."""
    storage, random = RecordedStorage(root), Random(7)
    for number, rate in enumerate((0.001, 0.002, 0.008, 0.03), 1):
        is_bad, begun = number == 4, time.time() - (5 - number) * DAY
        names = ("raw", "tokenized", "train", "perplexity", "hellaswag", "report")
        needs = {1: [0], 2: [1], 3: [2], 4: [2], 5: [3, 4]}
        steps: list[dict[str, Any]] = []
        for place, name in enumerate(names):
            shared = number if place > 1 else 9
            config = {"optimizer": {"learning_rate": rate}, "layers": 4} if name == "train" else {"seed": 0}
            inputs = [steps[need]["output_path"] for need in needs.get(place, ())]
            made = not (is_bad and place > 2)
            status = None if not made else "FAILED" if is_bad and place == 2 else "SUCCESS"
            steps.append(storage.step(f"{name}-{shared:06x}", status=status, config=config, dependencies=inputs))
        count = 620 if is_bad else 1000
        rows = [
            {
                "step": step,
                "loss": 0.8 + 3 * exp(-step * rate * 1.2) + random.gauss(0, 0.03),
                "lr": rate * min(1, step / 200),
            }
            for step in range(count)
        ]
        train = Path(steps[2]["output_path"])
        (train / ".executor_metrics").write_text("".join(json.dumps(row) + "\n" for row in rows))
        log = [f"step {row['step']}: loss {row['loss']:.4f}  lr {row['lr']:.2e}" for row in rows]
        failure = ["Traceback (most recent call last):", '  File "/work/tiny.py", line 61, in check']
        log += [*failure, f"\x1b[31m{ERROR}\x1b[0m"] if is_bad else []
        (train / ".log").write_text("\n".join(log) + "\n")
        events: list[dict[str, Any]] = [started(6, host="cell-1", user="ada", description=f"Tiny model, rate {rate:g}")]
        at, ends = begun, Counter[str]()
        for place, step in enumerate(steps):
            end = "cached" if place < 2 and number > 1 else "succeeded"
            end = "failed" if is_bad and place == 2 else "dep_failed" if is_bad and place > 2 else end
            seconds = 0.0 if end in ("cached", "dep_failed") else (90, 210, 640, 65, 80, 20)[place]
            if seconds:
                events.append({"event": "step_started", "time": at, "name": step["name"], "path": step["output_path"]})
            at += seconds
            error = ERROR if end == "failed" else "input failed" if end == "dep_failed" else None
            if status_file := next(Path(step["output_path"]).glob(".executor_status"), None):
                os.utime(status_file, (at, at))
            events.append(step_ended(step, end, seconds=seconds, time=at, error=error))
            ends[end] += 1
        events.append(ended(seconds=at - begun, ends=ends))
        name = storage.run(f"tiny-{number:06x}", steps, events)
        at_day = datetime.fromtimestamp(begun, UTC)
        log_file = root / "experiments" / f"{name}.events.jsonl"
        log_file.rename(log_file.with_name(f"tiny-{number:06x}-{at_day:%Y%m%dT%H%M%S.%f}Z-4.events.jsonl"))


ERROR = "ValueError: loss is not finite at step 620"


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "images")
    output: Path = parser.parse_args().output
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "prefix")
        root.mkdir()
        record(root)
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
                for name, place, width, height, scheme, shown in PICTURES:
                    page.set_viewport_size({"width": width, "height": height})
                    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                    page.goto(f"{bound.url}/experiments/{place}")
                    page.locator(shown).first.wait_for()
                    page.screenshot(path=str(output / f"{name}.png"))
                    print(output / f"{name}.png")
        finally:
            server.stop()
            thread.join()


if __name__ == "__main__":
    main()
