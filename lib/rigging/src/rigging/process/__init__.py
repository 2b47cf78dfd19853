"""This process and those it starts: calls, forks, locks of the kernel, signals, control groups.

Here belongs what a library needs to run code safely on one machine; what is sent to other machines does not.
"""
