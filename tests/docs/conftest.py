"""The builder of the site is beside the documents."""

import sys

from tests.docs.blocks import REPOSITORY

sys.path.append(str(REPOSITORY / "docs"))
