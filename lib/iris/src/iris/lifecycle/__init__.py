"""Starts, stops and inspects clusters whose file says where the controller runs: at Google, or on a host by ssh."""
