"""The mirror filesystem: `mirror://path` reads from any region's prefix and copies what it finds into the local one.

`fs` is the fsspec filesystem, on `union_fs`, which only asks; `prefetch` mirrors ahead of use; `union` looks into all
prefixes (`prefix_store`); `copying` decides (`request`) and copies: `fetch` runs `local` and `objects`.
"""
