"""The audit of one real training: canaries that a fair coin puts into its training set or leaves out."""
