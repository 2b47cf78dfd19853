"""Text for people and from people: tables, quantities, command lines, YAML, what is safe on a terminal.

Here belongs what turns text into values or values into text; nothing here opens a file or starts a process.
"""
