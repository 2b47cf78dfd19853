"""Reports to the controller: observations, output, and the cause of an end.

Here belongs what waits to be sent; sending is `connection`.
"""
