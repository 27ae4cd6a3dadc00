"""Local linear explanations that protect the records from which they are computed (Patel, Shokri, Zick 2020)."""
