"""How attempts run on this host: processes, their descendants and their output."""
