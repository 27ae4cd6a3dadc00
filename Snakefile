# The workflow lives in workflow/; this file lets plain `snakemake` find it from the checkout's root.
include: "workflow/Snakefile"
