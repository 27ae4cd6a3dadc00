"""Pool sources, one file each."""
