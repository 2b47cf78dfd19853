from support.rigging.server_fixtures import *  # noqa: F403
