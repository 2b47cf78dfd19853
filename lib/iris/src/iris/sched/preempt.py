"""Chooses the attempts to preempt: the cheapest set of less urgent attempts, gangs only as a whole."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from iris.core.state.booking import Booking, Demand
from iris.core.state.view import ClusterView
from iris.domain.endpoints import CHECKPOINT, endpoint_id
from iris.domain.ids import AttemptId, JobId
from iris.domain.job_spec import is_gang
from iris.domain.resources import Resources
from iris.domain.states import PriorityBand
from iris.sched.fit import Host, Pool
from iris.sched.fleet import Fleet

_LEAST_RUN_MS: Final = 60_000
_YOUNG_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Unit:
    """Attempts to preempt together: one attempt, or a whole gang.

    Args:
        cost: The work that would be lost, in core-seconds (an accelerator is 32 cores): see `Victims`.
    """

    job_id: JobId
    band: PriorityBand
    cost: float
    bookings: tuple[Booking, ...]

    def on(self, host: Host) -> Resources:
        """Return the resources that the unit frees on one host."""
        given = Resources()
        for booking in self.bookings:
            if booking.worker_id == host.worker.worker_id:
                given = given.add(booking.resources)
        return given


@dataclass(frozen=True, slots=True)
class Room:
    """Hosts for a request after the victims have ended. A host occurs once per task."""

    hosts: tuple[Host, ...]
    victims: tuple[Unit, ...]

    @property
    def cost(self) -> float:
        """Return the lost work of the victims."""
        return sum(unit.cost for unit in self.victims)


class Victims:
    """Candidates for preemption in this round, and the chosen victims.

    An attempt loses the time since its start or its last checkpoint. In its first minute it counts as if it lost a day,
    because otherwise the youngest would never get anywhere. One that does not run yet loses a second.

    Attributes:
        taken: Attempts chosen so far.
    """

    def __init__(self, view: ClusterView, fleet: Fleet, now_ms: int) -> None:
        self._now_ms = now_ms
        self._view = view
        self._fleet = fleet
        self.taken: set[AttemptId] = set()
        self._gangs: dict[JobId, Unit] = {}
        self._options: dict[tuple[Demand, PriorityBand], list[tuple[float, int, Host, Room]]] = {}
        # Work of the least urgent band of all that runs can preempt nothing.
        self._lowest = max(view.bookings.bands, default=PriorityBand.PRODUCTION)

    def may_help(self, band: PriorityBand) -> bool:
        """Return whether any work less urgent than `band` is running."""
        return band < self._lowest

    def units_on(self, host: Host, band: PriorityBand) -> list[Unit]:
        """Return the units on a host that work of `band` may preempt: only less urgent work, never production."""
        units: dict[str, Unit] = {}
        for booking in host.load.bookings.values():
            if booking.stopping or booking.prefilled or booking.attempt_id in self.taken:
                continue
            theirs = self._view.jobs[booking.job_id].spec.band
            if theirs <= band or theirs is PriorityBand.PRODUCTION:
                continue
            if booking.is_gang:
                units[booking.job_id] = self._gang(booking.job_id, theirs)
            else:
                units[booking.attempt_id] = Unit(booking.job_id, theirs, self._cost((booking,)), (booking,))
        return list(units.values())

    def _gang(self, job_id: JobId, band: PriorityBand) -> Unit:
        unit = self._gangs.get(job_id)
        if unit is None:
            view = self._view
            names = [task.attempt_id for task in view.tasks[job_id] if task.state.is_live]
            bookings = tuple(view.bookings[name] for name in names)
            unit = self._gangs[job_id] = Unit(job_id, band, self._cost(bookings), bookings)
        return unit

    def _cost(self, bookings: tuple[Booking, ...]) -> float:
        """Return the lost work of attempts that end together. One speaks for all about its checkpoint."""
        view, saved_ms = self._view, 0
        for booking in bookings if len(view.endpoints) else ():
            found = view.endpoints.get(endpoint_id(f"{booking.job_id}/{CHECKPOINT}", booking.attempt_id))
            saved_ms = saved_ms if found is None else max(saved_ms, found.registered_at_ms)
        return sum(booking.weight * self._lost_s(booking, saved_ms) for booking in bookings)

    def _lost_s(self, booking: Booking, saved_ms: int) -> float:
        task, _ = self._view.find_attempt(booking.attempt_id)
        if task is None or not task.started_at_ms:
            return 1.0
        if self._now_ms - task.started_at_ms < _LEAST_RUN_MS:
            return _YOUNG_S
        return max((self._now_ms - max(task.started_at_ms, saved_ms)) / 1000, 1.0)

    def take(self, room: Room) -> None:
        """Choose the victims. Record their resources as becoming free."""
        for unit in room.victims:
            for booking in unit.bookings:
                self.taken.add(booking.attempt_id)
                host = self._fleet.host(booking.worker_id)
                if host is not None:
                    host.expect(booking.resources)

    # ---- one task ----

    def for_task(self, demand: Demand, band: PriorityBand, pool: Pool) -> Room | None:
        """Return the cheapest room for one task; None if no preemption makes room.

        Args:
            demand: The task's demand.
            band: Only work less urgent than this band is preempted.
            pool: The hosts that fit the demand.
        """
        options = self._options.get((demand, band))
        if options is None:
            options = []
            for host in pool.changed() if (demand, band) in self._fleet.was_exhausted else pool.hosts:
                self._offer(options, host, demand.resources, band)
            heapify(options)
            self._options[(demand, band)] = options
        while options:
            _, _, host, known = heappop(options)
            again: list[tuple[float, int, Host, Room]] = []
            self._offer(again, host, demand.resources, band)
            for option in again:
                heappush(options, option)
            if again and again[0][3].victims == known.victims:
                return known
        self._fleet.exhausted.add((demand, band))
        return None

    def _offer(
        self, options: list[tuple[float, int, Host, Room]], host: Host, need: Resources, band: PriorityBand
    ) -> None:
        if host.held_by is not None:
            return
        victims = self.enough_on(host, need, self.units_on(host, band))
        if victims:
            room = Room((host,), tuple(victims))
            options.append((room.cost, host.order, host, room))

    def enough_on(
        self, host: Host, need: Resources, units: Sequence[Unit], given: Resources | None = None
    ) -> list[Unit] | None:
        """Return the cheapest set of these units that makes room for one task on the host, or None.

        Args:
            host: The host.
            need: The task's resources.
            units: Candidates on the host.
            given: Other capacity that becomes free on the host.
        """
        free = host.free if host.coming is None else host.free.add(host.coming)
        if given is not None:
            free = free.add(given)
        if need.fits(free):
            return []
        gives = {id(unit): unit.on(host) for unit in units}
        ordered = sorted(units, key=lambda unit: (-unit.band, unit.cost))
        chosen: list[Unit] = []
        room = free
        for unit in ordered:
            chosen.append(unit)
            room = room.add(gives[id(unit)])
            if need.fits(room):
                break
        else:
            return None
        # What was taken first may be needless after what was taken last.
        for unit in sorted(chosen, key=lambda unit: -unit.cost):
            without = room.sub(gives[id(unit)])
            if need.fits(without):
                chosen.remove(unit)
                room = without
        alone = min(
            (unit for unit in units if need.fits(free.add(gives[id(unit)]))), key=lambda unit: unit.cost, default=None
        )
        if alone is not None and alone.cost < sum(unit.cost for unit in chosen):
            return [alone]
        return chosen

    # ---- a gang ----

    def for_gang(
        self,
        job_id: JobId,
        need: Resources,
        band: PriorityBand,
        groups: Iterable[Sequence[Host]],
        size: int,
        count: int,
    ) -> list[Room] | None:
        """Return the cheapest room for `size` tasks in each of `count` groups, or None. Room without victims costs
        nothing.

        Args:
            job_id: The gang.
            need: Resources of one task.
            band: Only work less urgent than this band is preempted.
            groups: The hosts of each group.
            size: Tasks in each group.
            count: Number of groups.
        """
        rooms = [room for hosts in groups if (room := self._in_group(job_id, need, band, hosts, size)) is not None]
        if len(rooms) < count:
            return None
        rooms.sort(key=lambda room: (room.cost, room.hosts[0].order))
        return rooms[:count]

    def _in_group(
        self, job_id: JobId, need: Resources, band: PriorityBand, hosts: Sequence[Host], size: int
    ) -> Room | None:
        options: list[tuple[float, int, Host, list[Unit]]] = []
        for host in hosts:
            victims = self._for_member(host, need, band, job_id)
            if victims is not None:
                options.append((sum(unit.cost for unit in victims), host.order, host, victims))
        options.sort(key=lambda option: option[:2])
        chosen: dict[int, Unit] = {}
        places: list[Host] = []
        for _, _, host, victims in options:
            if len(places) == size:
                break
            given = Resources()
            for unit in victims:
                chosen[id(unit)] = unit
                given = given.add(unit.on(host))
            will_be = host.free.add(given) if host.coming is None else host.free.add(given).add(host.coming)
            while len(places) < size and need.fits(will_be):
                places.append(host)
                will_be = will_be.sub(need)
        if len(places) < size:
            return None
        in_order = {id(host): place for place, host in enumerate(hosts)}
        places.sort(key=lambda host: in_order[id(host)])
        return Room(tuple(places), tuple(chosen.values()))

    def _for_member(self, host: Host, need: Resources, band: PriorityBand, job_id: JobId) -> list[Unit] | None:
        if host.held_by not in (None, job_id):
            return None
        units = self.units_on(host, band)
        gangs = [unit for unit in units if is_gang(self._view.jobs[unit.job_id].spec)]
        leaving = {unit.job_id for unit in gangs} | self._ending_gangs(host)
        if not host.gangs <= leaving | {job_id}:
            return None  # a gang that may not be preempted is there
        given = Resources()
        for unit in gangs:
            given = given.add(unit.on(host))
        rest = self.enough_on(host, need, [unit for unit in units if unit not in gangs], given)
        return None if rest is None else [*gangs, *rest]

    def _ending_gangs(self, host: Host) -> set[JobId]:
        """Return the gangs whose attempts on the host are all ending."""
        staying = {
            booking.job_id
            for booking in host.load.bookings.values()
            if not booking.stopping and booking.attempt_id not in self.taken
        }
        return set(host.load.gang_attempts) - staying
