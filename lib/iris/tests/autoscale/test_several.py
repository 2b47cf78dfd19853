import asyncio
from dataclasses import dataclass, field, replace

from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Listing, Phase, SliceFound, SliceOrder
from iris.autoscale.several import SeveralProviders
from iris.domain.resources import Resources
from iris.domain.scale_groups import ScaleGroup

DONE = Answer(Outcome.DONE)
ONE, TWO = ScaleGroup("one", Resources()), ScaleGroup("two", Resources())


@dataclass
class Played:
    """A provider of one group's slices, or one that cannot list them."""

    group: str
    names: dict[str, SliceFound] = field(default_factory=dict)
    trouble: Answer | None = None

    async def create(self, order: SliceOrder) -> Answer:
        self.names[order.name] = SliceFound(order.name, self.group, Phase.READY)
        return DONE

    async def delete(self, name: str, group: ScaleGroup) -> Answer:
        del group
        self.names.pop(name, None)
        return DONE

    async def list(self) -> Listing:
        return Listing(dict(self.names)) if self.trouble is None else Listing({}, {self.group: self.trouble})

    async def close(self) -> None:
        self.names.clear()


def test_each_group_has_its_provider_also_when_the_file_has_lost_it() -> None:
    async def story() -> None:
        first, second, former = Played("one"), Played("two"), Played("gone")
        both = SeveralProviders({"one": first, "two": second, "three": second}, (first, second, former))
        for name, group in (("a", ONE), ("b", TWO), ("c", replace(TWO, name="three"))):
            assert await both.create(SliceOrder(name, group)) == DONE
        assert (set(first.names), set(second.names)) == ({"a"}, {"b", "c"})
        assert set((await both.list()).found) == {"a", "b", "c"}
        assert await both.delete("a", ScaleGroup("gone", Resources())) == DONE
        assert first.names == {}
        await former.create(SliceOrder("d", TWO))
        assert "d" in (await both.list()).found, "no group of the file has this provider any more"
        assert await both.delete("d", ScaleGroup("gone", Resources())) == DONE
        assert former.names == {}
        unknown = await both.delete("never", ScaleGroup("gone", Resources()))
        assert (unknown.outcome, "no provider lists never" in unknown.words) == (Outcome.UNKNOWN, True)
        second.trouble = Answer(Outcome.RATE, "slowly")
        assert (await both.list()).unlisted_groups == {"two": second.trouble}
        await both.close()
        assert second.names == {}

    asyncio.run(story())
