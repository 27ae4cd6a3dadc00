"""Audits what classifiers, and the explanations shipped with them, leak about who was in their training set."""
