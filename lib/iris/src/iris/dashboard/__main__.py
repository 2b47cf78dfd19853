"""`python -m iris.dashboard`: serves the pages for the controller that started it, and exits with the controller."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from typing import Any, TextIO

from iris.rpc.daemon import tune_process

tune_process()

from iris.dashboard.application import make_application  # noqa: E402  # gRPC is imported by it
from iris.dashboard.cluster_client import viewer_of  # noqa: E402
from iris.dashboard.settings import Settings, settings_of  # noqa: E402
from rigging.errors import MarinError  # noqa: E402
from rigging.log_setup import configure_logging  # noqa: E402
from rigging.web.context import Web  # noqa: E402
from rigging.web.serving import WebServer, bind  # noqa: E402

logger = logging.getLogger("iris.dashboard")


def main() -> int:
    """Serve the pages until stdin ends."""
    configure_logging(logging.INFO)
    # The controller ends this process by closing its stdin: a Ctrl-C in its terminal is the controller's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = sys.stdout
    sys.stdout = sys.stderr
    try:
        asyncio.run(_serve(settings_of(sys.stdin.readline()), answers))
    except MarinError as error:
        _answer(answers, {"error": str(error)})
        return 1
    return 0


async def _serve(settings: Settings, answers: TextIO) -> None:
    bound = bind(settings.port)
    # The next port, so that it is known beforehand to who makes a tunnel.
    beside = bind(bound.port + 1 if bound.port < 65535 else 0)
    app, live = make_application(settings, task_port=beside.port, home_port=bound.port)
    server = WebServer(app, bound, live.broadcaster.close)
    task_server = WebServer(app.state.task_pages, beside)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.stop)
    reader = asyncio.StreamReader(limit=1 << 16)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    serving = asyncio.create_task(server.run())
    serving_tasks = asyncio.create_task(task_server.run())
    _answer(answers, {"url": bound.url, "note": bound.note})
    requests = asyncio.create_task(_issue_links(reader, app.state.web, answers))
    await asyncio.wait([serving, requests], return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    task_server.stop()
    await asyncio.gather(serving, serving_tasks)
    requests.cancel()


async def _issue_links(reader: asyncio.StreamReader, web: Web, answers: TextIO) -> None:
    """Answer the controller's requests for links until stdin ends."""
    while line := await reader.readline():
        asked = json.loads(line)["link"]
        viewer = viewer_of(
            asked["user"], is_admin=asked["admin"], may_write=asked["may_write"], token_id=asked["token_id"]
        )
        _answer(answers, {"path": web.login_path(viewer)})


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    sys.exit(main())
