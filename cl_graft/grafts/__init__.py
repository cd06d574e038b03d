"""Where a task lives and what it keeps: regions, grafts, banks and how grafts are merged."""
