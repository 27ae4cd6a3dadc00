"""Privacy mechanisms, one file each."""
