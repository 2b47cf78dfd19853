"""Code for both sides of an actor's connection: messages, pickles, the handshake, the event loop.

Nothing here depends on the side.
"""
