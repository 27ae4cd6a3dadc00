"""Snakemake logger plugin `--logger mia-audit`: a line per stage with progress and time left, then the report's answer."""

from snakemake_logger_plugin_mia_audit.handler import LogHandler

__all__ = ["LogHandler"]
