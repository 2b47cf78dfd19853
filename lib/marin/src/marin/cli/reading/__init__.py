"""Reading for individual commands: names for completion, a script's steps, storage health.

`marin.recorded.reading` reads runs and outputs.
"""
