"""What both ends of an actor's connection share: messages, pickles, the handshake, the event loop.

Nothing here knows which end it serves.
"""
