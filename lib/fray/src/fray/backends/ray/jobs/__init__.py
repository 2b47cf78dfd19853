"""Jobs on Ray, in the process that submitted them."""
