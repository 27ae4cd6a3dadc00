include: "workflow/Snakefile"


workflow.default_target = "all"  # an included file's default target does not count
