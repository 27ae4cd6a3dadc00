"""Subcommands of the command line, one file each: arguments in, a pure stage called, files out."""
