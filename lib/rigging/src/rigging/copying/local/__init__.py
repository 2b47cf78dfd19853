"""Copies to local disks: part files, published by rename."""
