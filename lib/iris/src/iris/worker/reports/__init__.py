"""Reports to the controller: observations, output, and the cause of an end."""
