"""Page: report.html, a single file that loads no other file."""
