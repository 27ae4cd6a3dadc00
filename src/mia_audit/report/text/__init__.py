"""Text: numbers and findings in sentences."""
