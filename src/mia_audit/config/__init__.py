"""The audit's configuration: one YAML file, checked before anything runs."""
