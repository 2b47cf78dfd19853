"""Actors whose classes, arguments and results come from modules that only the sender has."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from fray.testing.contract.actor_subjects import ActorTests, create
from fray.testing.contract.callables import module_of_the_submitter_alone
from fray.testing.fixture import LONG, BackendFixture
from fray.types import ActorConfig

NAME = "senders_own_parcels"
SOURCE = """
class Parcel:
    def __init__(self, content):
        self.content = content

class Refused(Exception):
    pass

class Desk:
    def __init__(self, first=None):
        self.parcels = [] if first is None else [first]

    def add(self, parcel):
        if not isinstance(parcel, Parcel):
            raise Refused(f"{type(parcel)} is not {Parcel}")
        self.parcels.append(parcel)

    def take(self):
        return self.parcels.pop()

    def refuse(self):
        raise Refused("closed")

class Carrier:
    def carry(self, desk, other):
        parcel = desk.take()
        assert isinstance(parcel, Parcel), f"{type(parcel)} is not {Parcel}"
        other.add(Parcel(parcel.content + ", carried"))

def double(parcel):
    return Parcel(parcel.content * 2)

class Applier:
    def apply(self, fn, parcel):
        return fn(parcel)
"""


class TestActorModules(ActorTests):
    """A class that is sent several times, in several ways, stays one class everywhere."""

    @pytest.fixture
    def parcels(self, fray_backend: BackendFixture) -> Iterator[ModuleType]:
        """A module that is not importable elsewhere, like notebooks and tests."""
        yield module_of_the_submitter_alone(fray_backend.directory, SOURCE, NAME)
        del sys.modules[NAME]

    def test_arguments_and_results(self, fray_backend: BackendFixture, parcels: ModuleType) -> None:
        desk = create(fray_backend, parcels.Desk, parcels.Parcel("of the constructor"))
        desk.add(parcels.Parcel("of a call"))
        for content in ("of a call", "of the constructor"):
            parcel = desk.take()
            assert isinstance(parcel, parcels.Parcel)
            assert parcel.content == content

    def test_an_exception_is_caught_by_its_class(self, fray_backend: BackendFixture, parcels: ModuleType) -> None:
        desk = create(fray_backend, parcels.Desk)
        with pytest.raises(parcels.Refused, match="closed"):
            desk.refuse()
        with pytest.raises(parcels.Refused, match="int"):
            desk.add(5)

    def test_functions_of_the_module(self, fray_backend: BackendFixture, parcels: ModuleType) -> None:
        doubled = create(fray_backend, parcels.Applier).apply(parcels.double, parcels.Parcel("ab"))
        assert isinstance(doubled, parcels.Parcel)
        assert doubled.content == "abab"

    def test_between_two_actors(self, fray_backend: BackendFixture, parcels: ModuleType) -> None:
        hosted = fray_backend.client.host_actor(
            parcels.Desk, name=fray_backend.name("desk"), actor_config=ActorConfig(max_concurrency=2)
        )
        hosted.add(parcels.Parcel("a book"))
        other = create(fray_backend, parcels.Desk)
        create(fray_backend, parcels.Carrier).carry.remote(hosted.handle, other).result(LONG)
        assert other.take().content == "a book, carried"
