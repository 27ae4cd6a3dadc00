CURVED = audits.measures_curves(AUDIT)
MEASURES = expand("<results>/{group}/explanation_metrics.parquet", group=COMPARED)
CURVES = expand("<results>/{group}/curves.parquet", group=COMPARED) if CURVED else []
MAPS = expand("<results>/{group}/explanations.parquet", group=COMPARED)
GROUPED = files_of(audits.grouped_settings(AUDIT), "groups.parquet")
CANARIES = expand("<results>/{setting}/canaries.csv", setting=AUDIT.canaries.settings)
TABLES = table_files(REPORT)
FIGURES = figure_files(REPORT)
# in Snakemake's own report
SHOWN = f".{min(REPORT.figures.formats, key=('svg', 'png', 'pdf').index)}"
SIDE_BY_SIDE = {
    name: list(groups)
    for name in AUDIT.datasets
    if (groups := audits.side_by_side_settings(AUDIT, name))
}
FILTERED = {
    name: [setting for group in groups.values() for setting in group]
    for name in AUDIT.datasets
    if (groups := audits.filter_settings(AUDIT, name))
}


rule tables:
    input:
        files_of(SETTINGS, "metrics.parquet"),
        GROUPED,
        files_of(SETTINGS, "scores.parquet"),
        files_of(TRAINED, "training.parquet"),
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
        **logs("tables"),
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.report_memory(AUDIT)),
    params:
        spec=lambda w: spec(w, specs.ReportSpec.from_audit),
        results=folder(results),
        stage="tables",
    shell:
        "mia-audit {params.stage} --results {params.results} --spec {params.spec} --out {params.results}/{params.stage} --usage {log.usage} >{log.out} 2>&1"


use rule tables as figures with:
    input:
        rules.tables.input,
        MAPS,
    output:
        report(
            [f"<results>/figures/{name}" for name in FIGURES if name.endswith(SHOWN)],
            caption="../report/figures.rst",
            category="Figures",
        ),
        [f"<results>/figures/{name}" for name in FIGURES if not name.endswith(SHOWN)],
    log:
        **logs("figures"),
    params:
        spec=lambda w: spec(w, specs.ReportSpec.from_audit),
        results=folder(results),
        stage="figures",


rule filters:
    input:
        models=lambda w: blocks_of(FILTERED[w.dataset], lambda name: BLOCKS[name][:1]),
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
    output:
        directory("<results>/figures/filters/{dataset}"),
    log:
        **logs("filters", "{dataset}"),
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.MODEL_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.FiltersSpec.from_audit, w.dataset),
        results=folder(results),
    shell:
        "mia-audit filters --results {params.results} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule side_by_side:
    input:
        maps=lambda w: [
            f"<results>/{w.dataset}/{name}/explanations.parquet"
            for name in SIDE_BY_SIDE[w.dataset]
        ],
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
    output:
        directory("<results>/figures/side_by_side/{dataset}"),
    log:
        **logs("side_by_side", "{dataset}"),
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.MODEL_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.SideBySideSpec.from_audit, w.dataset),
        results=folder(results),
    shell:
        "mia-audit side-by-side --results {params.results} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule report:
    input:
        files_of(SETTINGS, "metrics.parquet"),
        GROUPED,
        files_of(SETTINGS, "scores.parquet"),
        files_of(TRAINED, "training.parquet"),
        MEASURES,
        CURVES,
        MAPS,
        files_of(SETTINGS, "signals.parquet"),
        blocks_of(TRAINED, BLOCKS.get),
        expand(
            "<results>/{target}/model",
            target=[
                f"{one.dataset}/{one.architecture}"
                for one in SETTINGS
                if one.architecture in AUDIT.targets
            ],
        ),
        ANSWERS,
        expand("<results>/figures/filters/{dataset}", dataset=FILTERED),
        CANARIES,
    output:
        page=report(
            "<results>/report.html", caption="../report/page.rst", category="Report"
        ),
        answer="<results>/answer.json",
        provenance="<results>/provenance.json",
    log:
        **logs("report"),
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.report_memory(AUDIT)),
    params:
        spec=lambda w: spec(w, specs.ReportSpec.with_studies),
        results=folder(results),
    shell:
        "mia-audit report --results {params.results} --spec {params.spec} --out {output.page} --usage {log.usage} >{log.out} 2>&1"


rule paper:
    input:
        "<results>/provenance.json",
        files_of(SETTINGS, "metrics.parquet", "scores.parquet", "signals.parquet"),
        files_of(TRAINED, "training.parquet"),
        ANSWERS,
    output:
        directory("<results>/paper"),
    log:
        "<results>/logs/paper.log",
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.report_memory(AUDIT)),
    params:
        spec=lambda w: spec(w, specs.PaperSpec.from_audit),
        results=folder(results),
    shell:
        "mia-audit paper {params.results} --spec {params.spec} --out {output} >{log} 2>&1"


KEPT = [
    *files_of(SETTINGS, "signals.parquet", "scores.parquet", "metrics.parquet"),
    *files_of(TRAINED, "training.parquet"),
]
FINISHED = [
    "<results>/report.html",
    "<results>/answer.json",
    "<results>/provenance.json",
    *PRIVATE,
    *CANARIES,
    *(["<results>/paper"] if AUDIT.report.paper else []),
]
if SETTINGS:  # a config may have only a study of private explanations, and no settings
    FINISHED += [
        *expand("<results>/tables/{name}", name=TABLES),
        *expand("<results>/figures/filters/{dataset}", dataset=FILTERED),
        *expand("<results>/figures/side_by_side/{dataset}", dataset=SIDE_BY_SIDE),
    ]


# One job draws all figures, so one figure is enough as an input. Snakemake compares every input with all outputs of that job.
rule manifest:
    input:
        sorted(FINISHED),
        rules.figures.output[:1] if SETTINGS else [],
        files_of(TRAINED, "models/.jobs/discarded")
        if AUDIT.compute.weights == "temporary"
        else [],
    output:
        "<results>/SHA256SUMS",
    log:
        "<results>/logs/manifest.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        results=folder(results),
    shell:
        "mia-audit manifest --results {params.results} >{log} 2>&1"
