"""Wall and processor seconds of `--grep` over many lines of one attempt.

usage: uv run --group dev python benchmarks/log_grep.py [LINES]
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from iris.controller.logs.keeper import LogKeeper, leftovers
from iris.controller.logs.search_process import Task
from iris.controller.logs.searcher import Searchers
from iris.controller.logs.store import LogKey, LogStore
from iris.rpc.logfilter import LineChoice
from iris.rpc.logformat import encode_lines

KEY: LogKey = ("/ann/train", 0, 0)
BEGIN_MS = 1_790_000_000_000
PATTERNS = ("step=1234567 ", r"step=99\d{5} .*lr", r"loss=0\.1234\d+", r"\d{30}", "(?i)ERROR")


def written(root: Path, count: int) -> LogStore:
    """Write a packed log of that many lines."""
    store = LogStore(root, limit_bytes=2**40)
    keeper = LogKeeper(store, None, lambda call: call())
    for first in range(0, count, 10_000):
        at_ms = BEGIN_MS + first // 10
        lines = [
            b"2026-11-23 02:43:28 INFO train step=%d loss=0.%04d lr=0.0003" % (i, i * 7919 % 10_000)
            for i in range(first, min(first + 10_000, count))
        ]
        store.append(KEY, store.size(KEY), encode_lines(False, at_ms, lines))
    for piece in leftovers(root):
        keeper.tend(piece)
    return store


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def grep(searchers: Searchers, pattern: str) -> tuple[float, int]:
    """Return seconds and the number of matches."""
    begin = time.perf_counter()
    found = 0
    async with searchers.begin(Task(searchers.root, "", LineChoice(pattern))) as searcher:
        async with aclosing(searcher.round([KEY], {}, True)) as batches:
            async for batch in batches:
                found += len(batch)
        return time.perf_counter() - begin, found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory(prefix="iris-grep-") as directory:
        root = Path(directory, "logs")
        begin = time.perf_counter()
        store = written(root, count)
        writing = time.perf_counter() - begin
        stored = sum(path.stat().st_size for path in root.rglob("~*"))
        size = store.size(KEY)
        print(json.dumps({"bench": "log-grep", "lines": count, "bytes": size, "packed": stored, "written_s": writing}))
        for pattern in PATTERNS:
            before = children_s()
            runs = [asyncio.run(grep(Searchers(str(root)), pattern)) for _ in range(3)]
            line = {"pattern": pattern, "s": [round(seconds, 2) for seconds, _ in runs], "found": runs[0][1]}
            line["processor_s"] = round((children_s() - before) / len(runs), 2)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
