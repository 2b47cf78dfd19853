"""Storage servers, clocks, browsers, disks and faults."""
