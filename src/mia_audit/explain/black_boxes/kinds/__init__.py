"""Black boxes, one file each."""
