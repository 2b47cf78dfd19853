"""Making a database again from the readable part of a damaged one."""
