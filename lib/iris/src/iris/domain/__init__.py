"""The vocabulary of iris as plain immutable types, which all other packages import.

Pure values: ids, states, entities, events, effects. Rules that need the whole cluster are elsewhere.
"""
