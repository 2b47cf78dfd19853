"""The vocabulary of iris as plain immutable types; everything else imports it.

Pure values: ids, states, entities, events, effects. No rule that needs the whole cluster.
"""
