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
FILTERED = {
    name: [setting for group in groups.values() for setting in group]
    for name in AUDIT.datasets
    if (groups := audits.filter_settings(AUDIT, name))
}


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
        report("<results>/report.html", caption="../report/page.rst", category="Report"),
        report(
            [f"<results>/tables/{name}" for name in TABLES if name.endswith(".csv")],
            caption="../report/tables.rst",
            category="Tables",
        ),
        report(
            [f"<results>/figures/{name}" for name in FIGURES if name.endswith(SHOWN)],
            caption="../report/figures.rst",
            category="Figures",
        ),
        "<results>/answer.json",
        "<results>/provenance.json",
        [f"<results>/tables/{name}" for name in TABLES if not name.endswith(".csv")],
        [f"<results>/figures/{name}" for name in FIGURES if not name.endswith(SHOWN)],
    log:
        **logs("report"),
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.report_memory(AUDIT)),
    params:
        spec=lambda w: spec(w, specs.ReportSpec.from_audit),
        results=folder(results),
    shell:
        "mia-audit report --results {params.results} --spec {params.spec} --usage {log.usage} >{log.out} 2>&1"


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
    *expand("<results>/figures/filters/{dataset}", dataset=FILTERED),
    *CANARIES,
    *(["<results>/paper"] if AUDIT.report.paper else []),
]


rule manifest:
    input:
        FINISHED,
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
