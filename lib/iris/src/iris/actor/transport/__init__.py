"""Shared by both ends of an actor's connections: messages, pickles, the handshake, the event loop."""
