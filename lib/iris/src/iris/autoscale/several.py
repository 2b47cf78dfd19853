"""Combines providers, where some groups of a cluster file are made at Google and others of hosts by ssh."""

import asyncio
from collections.abc import Mapping, Sequence

from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Listing, SliceFound, SliceOrder, SliceProvider
from iris.domain.scale_groups import ScaleGroup


class SeveralProviders:
    """Slices of several providers, by group (`SliceProvider`).

    Args:
        of_group: The provider of each group, by the group's name.
        providers: All providers. One without a group ends the slices of former groups.
    """

    def __init__(self, of_group: Mapping[str, SliceProvider], providers: Sequence[SliceProvider]) -> None:
        self._of_group, self._all = of_group, providers
        self._of_slice: dict[str, SliceProvider] = {}

    async def create(self, order: SliceOrder) -> Answer:
        return await self._of_group[order.group.name].create(order)

    async def delete(self, name: str, group: ScaleGroup) -> Answer:
        provider = self._of_slice.get(name) or self._of_group.get(group.name)
        if provider is None:
            return Answer(Outcome.UNKNOWN, f"no provider lists {name}, and {group} is not in the cluster file")
        return await provider.delete(name, group)

    async def list(self) -> Listing:
        listings = await asyncio.gather(*(provider.list() for provider in self._all))
        found: dict[str, SliceFound] = {}
        unlisted: dict[str, Answer] = {}
        troubles: dict[str, str] = {}
        for provider, listing in zip(self._all, listings, strict=True):
            found |= listing.found
            unlisted |= listing.unlisted_groups
            troubles |= listing.troubles
            self._of_slice |= dict.fromkeys(listing.found, provider)
        return Listing(found, unlisted, troubles)

    async def close(self) -> None:
        await asyncio.gather(*(provider.close() for provider in self._all))
