from support.iris.async_tests import *  # noqa: F403
