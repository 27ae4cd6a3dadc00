"""Subcommands of the command line by subject (`MODULES` in cli.py): parse arguments, call a pure function, write files."""
