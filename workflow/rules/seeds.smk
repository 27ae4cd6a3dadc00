OVER_SEEDS = [
    str(ROOT / name)
    for name in (
        *("report.html", "answer.json", "provenance.json", "SHA256SUMS"),
        *over_seeds_files(REPORT),
    )
]


rule over_seeds:
    input:
        # which lists all files of a seed
        of_every_seed(["<results>/SHA256SUMS"]),
    output:
        OVER_SEEDS,
    log:
        out=f"{ROOT}/logs/over_seeds.log",
        usage=f"{ROOT}/benchmarks/over_seeds.tsv",
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.DRAWING_MEGABYTES),
    params:
        spec=lambda w: written(None, specs.SeedsSpec.from_audit),
        results=folder(str(ROOT)),
    shell:
        "mia-audit over-seeds --results {params.results} --spec {params.spec} --usage {log.usage} >{log.out} 2>&1"
