"""Planning: the cost of an audit and its jobs (models, jobs, hours, disk, memory), and checks whether a machine can run it."""
