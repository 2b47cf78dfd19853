"""The remote state: layout, replication, restore.

Remote copies of the database belong here. Leases come from `rigging.lease`.
"""
