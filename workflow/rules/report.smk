rule tables:
    input:
        below(SETTINGS, "metrics.parquet"),
        below(TRAINED, "training.parquet"),
        MEASURES,
        CURVES,
    output:
        report(
            [f"<results>/tables/{name}" for name in TABLES if name.endswith(".csv")],
            caption="../report/tables.rst",
            category="Tables",
        ),
        [f"<results>/tables/{name}" for name in TABLES if not name.endswith(".csv")],
    log:
        "<results>/logs/tables.log",
    benchmark:
        "<results>/benchmarks/tables.tsv"
    conda:
        "../../envs/environment.yaml"
    params:
        spec=slices.report_slice(AUDIT),
        results=subpath(output[0], ancestor=2),
        folder=subpath(output[0], parent=True),
    shell:
        "mia-audit tables --results {params.results} --spec {params.spec:q} --out {params.folder} >{log} 2>&1"


rule figures:
    input:
        below(SETTINGS, "metrics.parquet"),
        below(SETTINGS, "scores.parquet"),
        below(TRAINED, "training.parquet"),
        MEASURES,
        CURVES,
        MAPS,
    output:
        report(
            [f"<results>/figures/{name}" for name in FIGURES if name.endswith(".svg")],
            caption="../report/figures.rst",
            category="Figures",
        ),
        [f"<results>/figures/{name}" for name in FIGURES if not name.endswith(".svg")],
    log:
        "<results>/logs/figures.log",
    benchmark:
        "<results>/benchmarks/figures.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=lambda w, attempt: attempt * slices.report_megabytes(AUDIT),
    params:
        spec=slices.report_slice(AUDIT),
        results=subpath(output[0], ancestor=2),
        folder=subpath(output[0], parent=True),
    shell:
        "mia-audit figures --results {params.results} --spec {params.spec:q} --out {params.folder} >{log} 2>&1"


rule filters:
    input:
        models=lambda w: below(
            [
                setting
                for group in slices.with_filters(AUDIT, w.dataset).values()
                for setting in group
            ],
            f"models/{BLOCKS[0]}",
        ),
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
    output:
        directory("<results>/figures/filters/{dataset}"),
    log:
        "<results>/logs/filters/{dataset}.log",
    benchmark:
        "<results>/benchmarks/filters/{dataset}.tsv"
    conda:
        "../../envs/environment.yaml"
    params:
        spec=lambda w: slices.filters_slice(AUDIT, w.dataset),
        results=subpath(output[0], ancestor=3),
    shell:
        "mia-audit filters --results {params.results} --spec {params.spec:q} --out {output} >{log} 2>&1"


rule side_by_side:
    input:
        maps=lambda w: [
            f"<results>/{w.dataset}/{name}/explanations.parquet"
            for name in slices.side_by_side(AUDIT, w.dataset)
        ],
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
    output:
        directory("<results>/figures/side_by_side/{dataset}"),
    log:
        "<results>/logs/side_by_side/{dataset}.log",
    benchmark:
        "<results>/benchmarks/side_by_side/{dataset}.tsv"
    conda:
        "../../envs/environment.yaml"
    params:
        spec=lambda w: slices.side_by_side_slice(AUDIT, w.dataset),
        results=subpath(output[0], ancestor=3),
    shell:
        "mia-audit side-by-side --results {params.results} --spec {params.spec:q} --out {output} >{log} 2>&1"


rule report:
    input:
        below(SETTINGS, "metrics.parquet"),
        below(SETTINGS, "scores.parquet"),
        below(TRAINED, "training.parquet"),
        MEASURES,
        CURVES,
        MAPS,
        below(SETTINGS, "signals.parquet"),
        below(TRAINED, *[f"models/{block}" for block in BLOCKS]),
        ANSWERS,
    output:
        page=report(
            "<results>/report.html", caption="../report/page.rst", category="Report"
        ),
        provenance="<results>/provenance.json",
    log:
        "<results>/logs/report.log",
    benchmark:
        "<results>/benchmarks/report.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=lambda w, attempt: attempt * slices.report_megabytes(AUDIT),
    params:
        spec=slices.report_slice(AUDIT),
        private=STUDIES,
        results=subpath(output.page, parent=True),
    shell:
        "mia-audit report --results {params.results} --spec {params.spec:q} {params.private} --out {output.page} >{log} 2>&1"
