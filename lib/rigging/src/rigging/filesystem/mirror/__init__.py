"""The mirror filesystem: `mirror://path` reads from any region's prefix and copies what it finds into the local one.

`fs` is the face (an fsspec filesystem), `prefetch` mirrors directories ahead; below them `regions` says which prefixes
there are, `plan` decides, `union` looks into all of them, `copy` does the copying.
"""
