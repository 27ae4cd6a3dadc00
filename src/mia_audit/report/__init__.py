"""Report: tables, figures and the HTML page."""
