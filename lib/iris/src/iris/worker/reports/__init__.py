"""Reports for the controller: observations, output, and causes of ends. `connection` sends them."""
