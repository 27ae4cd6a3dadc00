"""Subcommands of the command line, one file each: parse arguments, call a pure function, write files."""
