"""The mirror filesystem: `mirror://path` reads from any region's prefix and copies what it reads into the local one.

`fs` is the fsspec filesystem, on top of `union_fs`, which only queries. `prefetch` mirrors ahead of use.
`rigging.prefixes` looks into all prefixes; `rigging.copying` decides (`request`) and copies.
"""
