"""The state off the machine: layout, replication, restore.

Here belong remote copies of the database; leases come from `rigging.lease`.
"""
