from iris.core.state.usage import HALF_LIFE_MS
from iris.domain.entities import UserBudget
from iris.domain.events import BudgetSet
from iris.domain.states import PriorityBand
from iris.sched.order import places, turns
from iris.sched.reserve import MAX_RESERVED, RESERVE_AFTER_MS
from support.iris.scheduling import InMemoryCluster, resources

BATCH = PriorityBand.BATCH


def order(cluster: InMemoryCluster, later_ms: int = 0, weight: float = 0.0, tasks: int = 1) -> list[str]:
    """The jobs as they are served when each turn places `tasks` and is done."""
    found = []
    for turn in turns(cluster.view, cluster.now_ms + later_ms):
        found.append(f"{turn.job_id} {turn.band.word}")
        turn.placed_weight = weight * tasks
    return found


def test_of_one_user_band_by_band_the_oldest_first(cluster):
    cluster.submit("/ann/a", band=BATCH)
    cluster.submit("/ann/b")
    cluster.submit("/ann/c", band=PriorityBand.PRODUCTION)
    cluster.submit("/ann/d")
    assert order(cluster) == ["/ann/c production", "/ann/b interactive", "/ann/d interactive", "/ann/a batch"]
    assert all(turn.is_done and turn.limit > 1 << 40 for turn in turns(cluster.view, cluster.now_ms))


def test_of_several_users_each_in_turn_and_of_each_the_oldest_first(cluster):
    for name in ("/ann/a", "/ann/b", "/ann/c", "/bob/d", "/bob/e"):
        cluster.submit(name)
    expected = [f"/{job} interactive" for job in ("ann/a", "bob/d", "ann/b", "bob/e", "ann/c")]
    assert order(cluster, weight=1.0) == expected


def test_a_user_of_whom_nothing_fits_does_not_take_others_turns(cluster):
    for name in ("/ann/a", "/ann/b", "/bob/c"):
        cluster.submit(name)
    assert order(cluster) == ["/ann/a interactive", "/ann/b interactive", "/bob/c interactive"]


def test_a_job_that_is_not_done_comes_again_after_the_others(cluster):
    cluster.submit("/ann/many", replicas=20)
    cluster.submit("/ann/next")
    cluster.submit("/bob/one")
    seen = []
    left = {"/ann/many": 20, "/ann/next": 1, "/bob/one": 1}
    for turn in turns(cluster.view, cluster.now_ms):
        count = min(turn.limit, left[turn.job_id])
        left[turn.job_id] -= count
        seen.append((turn.job_id, count))
        turn.is_done, turn.placed_weight = left[turn.job_id] == 0, float(count)
    assert seen == [("/ann/many", 8), ("/bob/one", 1), ("/ann/many", 8), ("/ann/many", 4), ("/ann/next", 1)]


def test_the_place_of_each_is_that_of_a_round_in_which_everything_fits(cluster):
    cluster.submit("/ann/many", replicas=20)
    cluster.submit("/ann/next")
    cluster.submit("/bob/one")
    cluster.submit("/bob/late", band=BATCH)
    cluster.submit("/ann/late", band=BATCH)
    assert places(cluster.view, cluster.now_ms) == {
        "/ann/many": (1, 3), "/bob/one": (2, 3), "/ann/next": (3, 3), "/bob/late": (1, 2), "/ann/late": (2, 2),
    }  # fmt: skip


def test_who_is_over_budget_is_served_as_batch_by_age(cluster):
    cluster.connect("w", resources(2))
    cluster.launch("/ann/runs", resources(2))
    cluster.do(BudgetSet(UserBudget("ann", max_weight=2.0)))
    cluster.submit("/ann/batch", band=BATCH)
    cluster.submit("/ann/wants")
    cluster.submit("/bob/wants")
    cluster.submit("/ann/prod", band=PriorityBand.PRODUCTION)
    assert order(cluster) == ["/bob/wants interactive", "/ann/batch batch", "/ann/wants batch", "/ann/prod batch"]
    cluster.do(BudgetSet(UserBudget("ann", max_weight=2.5)))
    assert order(cluster)[0] == "/ann/prod production"
    cluster.do(BudgetSet(UserBudget("ann", max_weight=0)))
    assert order(cluster)[0] == "/ann/prod production", "0 is no limit"


def test_who_has_had_less_comes_first_though_younger_and_use_is_forgotten(cluster):
    cluster.view.usage.restore("ann", 1e9, 0)
    cluster.submit("/ann/old")
    cluster.submit("/bob/young")
    assert order(cluster)[0] == "/bob/young interactive"
    cluster.view.usage.restore("bob", 1e5, cluster.now_ms + 20 * HALF_LIFE_MS)
    assert order(cluster, 20 * HALF_LIFE_MS)[0] == "/ann/old interactive"


def test_a_large_job_does_not_take_all_before_another_user_has_a_turn(cluster):
    cluster.connect("w", resources(32, 64))
    cluster.submit("/ann/large", replicas=100)
    cluster.submit("/bob/large", replicas=100)
    served = [task.split("/")[1] for task, _ in cluster.schedule().assignments]
    assert (served.count("ann"), served.count("bob")) == (16, 16)


def test_who_is_over_budget_preempts_nobody(cluster):
    cluster.connect("w", resources(2, 16))
    cluster.do(BudgetSet(UserBudget("ann", max_weight=1)))
    cluster.submit("/ann/job")
    cluster.launch("/zoe/batch", band=BATCH)
    cluster.submit("/ann/more")
    assert cluster.schedule().preemptions == []


class TestAgedGangs:
    def gang(self, cluster: InMemoryCluster, name: str, **fields: object) -> None:
        cluster.submit(name, replicas=2, coscheduling_group_by="pool", **fields)

    def test_one_that_has_waited_comes_first_in_its_band_and_once(self, cluster):
        cluster.submit("/ann/old")
        self.gang(cluster, "/ann/gang")
        cluster.submit("/ann/prod", band=PriorityBand.PRODUCTION)
        early = RESERVE_AFTER_MS - (cluster.now_ms - cluster.job("/ann/gang").submitted_at_ms) - 1
        assert order(cluster, early)[1:] == ["/ann/old interactive", "/ann/gang interactive"]
        assert order(cluster, early + 1) == ["/ann/prod production", "/ann/gang interactive", "/ann/old interactive"]

    def test_one_of_each_user_in_each_band_and_a_few_in_all(self, cluster):
        for number in range(MAX_RESERVED + 1):
            cluster.submit(f"/user{number}/old")
        for number in range(MAX_RESERVED + 1):
            for name in ("first", "second"):
                self.gang(cluster, f"/user{number}/{name}")
        self.gang(cluster, "/user0/batch", band=BATCH)
        found = order(cluster, RESERVE_AFTER_MS)
        assert found[:MAX_RESERVED] == [f"/user{number}/first interactive" for number in range(MAX_RESERVED)]
        assert found[MAX_RESERVED] == "/user0/old interactive"
        assert len(found) == len(set(found)) == 3 * (MAX_RESERVED + 1) + 1
        assert found[-1] == "/user0/batch batch"

    def test_the_gang_of_one_over_budget_comes_first_in_the_batch_band(self, cluster):
        cluster.connect("w", resources(1))
        cluster.launch("/ann/runs")
        cluster.do(BudgetSet(UserBudget("ann", max_weight=1.0)))
        cluster.submit("/bob/batch", band=BATCH)
        cluster.submit("/bob/wants")
        self.gang(cluster, "/ann/gang")
        assert order(cluster, RESERVE_AFTER_MS) == ["/bob/wants interactive", "/ann/gang batch", "/bob/batch batch"]
