"""Attestations of runs, and runs of their steps anew to verify them.

What an attestation holds (`attestation`) and how files are compared (`comparison`) are pure.
"""
