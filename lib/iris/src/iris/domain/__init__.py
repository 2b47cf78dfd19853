"""The vocabulary of iris as plain immutable types, for all other packages.

Pure values: ids, states, entities, events, effects. Rules that need the whole cluster do not belong here.
"""
