"""Tables: each file registers its tables in `catalogue.tables`, with the data and the layout of each."""
