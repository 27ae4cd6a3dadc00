"""This package's own mechanisms, as the tester takes them."""
