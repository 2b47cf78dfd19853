"""Attestations of runs, and reruns of their steps to verify them.

The document (`attestation`) and the comparison of files (`comparison`) are pure.
"""
