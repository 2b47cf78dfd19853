"""What is in a file, for people: the first part of it, never more than fits in memory."""
