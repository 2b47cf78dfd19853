"""Delivers notices of jobs' ends at least once, across restarts of the controller.

Each notice is recorded (`debts`) from the job's submission to the delivery, so that no end is lost between its commit
and the request. A webhook for the whole cluster receives only the ends of root jobs.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iris.autoscale.missing import Missing
from iris.controller.notices.debts import Debts
from iris.controller.notices.message import body_of, capacity_message, message_of, signed_headers
from iris.controller.notices.names import HostAddresses
from iris.controller.notices.post import PostFailedError, PostRefusedError, post
from iris.core.state.view import ClusterView
from iris.domain.effects import Effect, JobChanged, JobEnded
from iris.domain.entities import Job
from iris.domain.ids import JobId, parent_of
from iris.domain.webhooks import IpAddress, Webhook, parse_webhook, refusal
from rigging.errors import InvalidRequest
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

AT_ONCE: Final = 8
_NOWHERE: Final = ipaddress.ip_address("0.0.0.0")
"""An address that only a rule for all addresses allows."""


@dataclass(frozen=True, slots=True)
class NoticeRules:
    """The receivers of notices, and the timing of deliveries.

    Args:
        url: The webhook that receives every root job's end; empty for none.
        allow: Allowed hosts, patterns of hosts and networks (see `iris.domain.webhooks.refusal`).
        is_private: Whether only this machine's user can submit.
        timeout_s: Timeout of one attempt. retry_s: First and longest delay between attempts. give_up_s: Total time
            after the first attempt.
    """

    url: str = ""
    allow: tuple[str, ...] = ()
    is_private: bool = False
    timeout_s: float = 10.0
    retry_s: tuple[float, float] = (1.0, 300.0)
    give_up_s: float = 24 * 3600.0


class Notifier:
    """Listens to the engine's effects and delivers notices.

    Args:
        debts: The pending notices.
        secret: The secret for message signatures.
        clock_ms: Returns Unix ms.
    """

    def __init__(
        self,
        view: ClusterView,
        debts: Debts,
        secret: bytes,
        rules: NoticeRules,
        clock_ms: Callable[[], int],
        cluster: str = "",
    ) -> None:
        self._view = view
        self._debts = debts
        self._secret = secret
        self._rules = rules
        self._clock_ms = clock_ms
        self._cluster = cluster
        self._hosts = HostAddresses()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def check(self, url: str) -> None:
        """Refuse an address that is invalid or not allowed. Raises InvalidRequest.

        The delivery checks the resolved name again. A name that does not resolve in time is accepted.
        """
        webhook = parse_webhook(url)
        if not self._refusal(webhook, _NOWHERE):
            return  # wherever it is
        try:
            addresses = [ipaddress.ip_address(webhook.host)]
        except ValueError:
            addresses = await self._hosts.of(webhook.host)
        for address in addresses:
            reason = self._refusal(webhook, address)
            if reason:
                raise InvalidRequest(reason)

    def restore(self, numbered: Callable[[Iterable[int]], Iterable[Job]]) -> None:
        """Load the pending notices of the previous controller.

        Args:
            numbered: Returns the stored jobs with some sequence numbers.
        """
        owed = self._debts.names()
        ended = (job for job in numbered(map(_number_of, owed)) if job.state.is_terminal)
        for job in [*ended, *(self._view.jobs[job_id] for job_id in self._view.live_jobs)]:
            for url in self._urls(job):
                name = _name(job, url, self._rules)
                if name in owed and job.state.is_terminal:
                    self._begin(name, job, url)
                elif not job.state.is_terminal:
                    self._debts.owe(name)
                owed.discard(name)
        for name in owed:
            self._debts.settle(name)  # of jobs that are forgotten

    def on_effects(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, JobChanged | JobEnded):
                self._look_at(effect.job_id, isinstance(effect, JobEnded))

    def tell_operator(self, missing: Sequence[Missing]) -> None:
        """Send a notice about missing capacity to the cluster's webhook, if there is one."""
        now_ms = self._clock_ms()
        name = f"capacity-{now_ms}"
        if self._rules.url:
            body = body_of(capacity_message(missing, self._cluster))
            self._spawn(name, self._deliver(name, body, self._rules.url, "the lack of capacity", now_ms))

    async def close(self) -> None:
        """Stop delivering. The next controller delivers the remaining notices."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._debts.flush()

    def _look_at(self, job_id: JobId, ended: bool) -> None:
        job = self._view.jobs.get(job_id)
        for url in () if job is None else self._urls(job):
            assert job is not None  # it has urls
            name = _name(job, url, self._rules)
            if not job.state.is_terminal:
                self._debts.owe(name)
            elif ended:
                self._debts.owe(name)
                self._begin(name, job, url)

    def _urls(self, job: Job) -> list[str]:
        of_all = [self._rules.url] if self._rules.url and parent_of(job.job_id) is None else []
        own = [job.spec.notify_url] if job.spec.notify_url else []
        return list(dict.fromkeys(own + of_all))

    def _begin(self, name: str, job: Job, url: str) -> None:
        if name not in self._tasks:
            body = body_of(message_of(job, self._cluster))
            self._spawn(name, self._deliver(name, body, url, f"the end of {job.job_id}", job.finished_at_ms))

    def _spawn(self, name: str, delivery: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(delivery, name=f"notice-{name}")
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _deliver(self, name: str, body: bytes, url: str, what: str, at_ms: int) -> None:
        backoff = ExponentialBackoff(*self._rules.retry_s, factor=2.0)
        end_ms = max(at_ms, 1) + self._rules.give_up_s * 1000
        is_first = True
        while is_first or self._clock_ms() < end_ms:
            is_first = False
            try:
                await self._post(name, body, url)
                self._debts.settle(name)
                return
            except (PostRefusedError, InvalidRequest) as error:
                logger.warning("%s is not told: %s", what, error)
                self._debts.settle(name)
                return
            except PostFailedError as error:
                pause = backoff.next_interval()
                logger.info("%s is not told yet: %s; it is tried again in %.1f s", what, error, pause)
            await asyncio.sleep(pause)
        logger.warning("%s was not told within %g s, and is given up", what, self._rules.give_up_s)
        self._debts.settle(name)

    async def _post(self, name: str, body: bytes, url: str) -> None:
        webhook = parse_webhook(url)
        async with self._slots:
            await post(
                webhook,
                body,
                signed_headers(body, self._secret, self._clock_ms() // 1000, name),
                timeout_s=self._rules.timeout_s,
                refusal=lambda address: self._refusal(webhook, address),
            )

    def _refusal(self, webhook: Webhook, address: IpAddress) -> str:
        if self._rules.url and webhook == parse_webhook(self._rules.url):
            return ""  # the operator's own
        return refusal(webhook, address, self._rules.allow, is_private=self._rules.is_private)


def _number_of(name: str) -> int:
    """Return the sequence number of a notice's job; 0 for a name of another form."""
    number = name.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def _name(job: Job, url: str, rules: NoticeRules) -> str:
    """Return the name of a notice: stable across restarts, and different for another job with the same name."""
    return f"{job.sequence}-{job.submitted_at_ms}-{'cluster' if url == rules.url else 'job'}"
