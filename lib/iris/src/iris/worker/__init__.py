"""The agent on one host: it starts what the controller desires, and says truthfully what became of it."""
