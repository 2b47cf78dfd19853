"""Text for and from people: tables, quantities, command lines, YAML, terminal-safe text.

Code that turns text into values or values into text belongs here. Nothing here opens a file or starts a process.
"""
