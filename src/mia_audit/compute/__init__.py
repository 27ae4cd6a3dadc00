"""Where and how a process computes: its card, its precision, and what to do when memory runs out."""
