"""Demand, room and routes of one plan, and the slices to release. Pure."""
