"""The promises of every backend, as tests. Import the classes into a test module and list backends in FRAY_BACKENDS.

Tests also cover each declared difference (`fray.capabilities`): what happens instead of the promise.
"""

from fray.testing.contract.actor_groups import TestActorGroups
from fray.testing.contract.actor_lifetimes import TestActorLifetimes
from fray.testing.contract.actor_modules import TestActorModules
from fray.testing.contract.actors import TestActors
from fray.testing.contract.callables import TestCallables
from fray.testing.contract.clients import TestClients
from fray.testing.contract.environments import TestEnvironments
from fray.testing.contract.functions import TestActorFunctions, TestFunctions
from fray.testing.contract.lifecycle import TestLifecycle
from fray.testing.contract.mapping import TestMap
from fray.testing.contract.names import TestNames
from fray.testing.contract.nesting import TestNestedJobs
from fray.testing.contract.programs import TestPrograms
from fray.testing.contract.replicas import TestReplicas
from fray.testing.contract.results import TestResults
from fray.testing.contract.waiting import TestWaiting

__all__ = [
    "TestActorFunctions",
    "TestActorGroups",
    "TestActorLifetimes",
    "TestActorModules",
    "TestActors",
    "TestCallables",
    "TestClients",
    "TestEnvironments",
    "TestFunctions",
    "TestLifecycle",
    "TestMap",
    "TestNames",
    "TestNestedJobs",
    "TestPrograms",
    "TestReplicas",
    "TestResults",
    "TestWaiting",
]
