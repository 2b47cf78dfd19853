"""A small training library, written as libraries for this project's public ancestor are.

It trains a network of two layers on points of a plane, with checkpoints that a killed run continues from, and has what
larger ones have: a job for the run, the processes of one JAX program, a tracker, the share of the device's peak rate,
and sweeps. It knows only names that such libraries import.
"""
