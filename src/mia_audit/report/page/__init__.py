"""Page: report.html, one file that loads nothing."""
