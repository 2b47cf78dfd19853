"""The mirror filesystem: `mirror://path` reads from any region's prefix and copies what it reads into the local one.

`fs` is the fsspec filesystem; its base, `union_fs`, implements the queries. `prefetch` mirrors ahead of use.
`rigging.prefixes` queries all prefixes; `rigging.copying` copies.
"""
