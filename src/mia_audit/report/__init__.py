"""Report: tables, figures and the page that a reader takes away."""
