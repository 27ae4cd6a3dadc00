"""This package's own mechanisms, as targets of the tester."""
