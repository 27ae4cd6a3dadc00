"""What an audit will take before it is run: models, jobs, hours, disk and memory."""
