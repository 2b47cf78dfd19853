"""The mirror filesystem: `mirror://path` reads files of any region's prefix, and copies them into the local one.

`fs` is the fsspec filesystem; its base, `union_fs`, implements the queries. `prefetch` mirrors ahead of use.
`rigging.prefixes` queries all prefixes; `rigging.copying` copies.
"""
