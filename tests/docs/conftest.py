"""Put the site builder, beside the documents, on the import path."""

import sys

from tests.docs.blocks import REPOSITORY

sys.path.append(str(REPOSITORY / "docs"))
