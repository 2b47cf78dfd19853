"""What command lines share: groups that suggest names, tables or JSON, exit. Needs click.

No command is here.
"""
