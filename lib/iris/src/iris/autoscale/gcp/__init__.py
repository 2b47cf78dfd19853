"""Slices at Google by REST: TPU nodes and queued resources by the TPU API, and virtual machines by Compute Engine."""
