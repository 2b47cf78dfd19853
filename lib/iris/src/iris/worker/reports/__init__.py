"""Reports to the controller: observations, output, and the cause of an end.

For reports that wait to be sent; `connection` sends them.
"""
