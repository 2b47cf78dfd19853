"""Parts that all command lines share: groups that suggest names, output as tables or JSON, exit codes. Needs click.

It contains no commands.
"""
