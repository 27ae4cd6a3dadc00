"""Planning: what an audit and its jobs take (models, jobs, hours, disk, memory), and whether a machine can run it."""
