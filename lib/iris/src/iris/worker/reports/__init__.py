"""What the controller is told: observations, output, and the cause of an end."""
