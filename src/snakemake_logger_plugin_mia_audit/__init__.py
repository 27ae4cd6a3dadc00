"""Snakemake logger plugin `--logger mia-audit`: one line per stage with progress and time left, and then the report's answer."""

from snakemake_logger_plugin_mia_audit.handler import LogHandler

__all__ = ["LogHandler"]
