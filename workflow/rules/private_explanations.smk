rule black_box:
    input:
        unpack(black_box_models),
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
    output:
        "<results>/{dataset}/private/{black_box}/values.parquet",
    log:
        "<results>/logs/black_box/{dataset}-{black_box}.log",
    benchmark:
        "<results>/benchmarks/black_box/{dataset}-{black_box}.tsv"
    wildcard_constraints:
        black_box=one_of(name for _, name in STUDIED),
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=2000,
    params:
        spec=lambda w: slices.black_box_slice(AUDIT, w.dataset, w.black_box),
        pool=subpath(input.records, parent=True),
        model=lambda w, input: (
            f"--models {input.models} --architecture {input.architecture}"
            if "models" in input.keys()
            else ""
        ),
    shell:
        "mia-audit black-box --pool {params.pool} {params.model} --spec {params.spec:q} --threads {threads} --out {output} >{log} 2>&1"


rule explain_privately:
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        values="<results>/{dataset}/private/{black_box}/values.parquet",
        reference=without_privacy,
    output:
        "<results>/{dataset}/private/{black_box}/answers.parquet",
    log:
        "<results>/logs/explain_privately/{dataset}-{black_box}.log",
    benchmark:
        "<results>/benchmarks/explain_privately/{dataset}-{black_box}.tsv"
    wildcard_constraints:
        black_box=one_of(name for _, name in STUDIED),
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=2000,
    params:
        spec=lambda w: slices.private_slice(AUDIT, w.dataset),
        pool=subpath(input.records, parent=True),
        reference=lambda w, input: (
            f"--reference {input.reference}" if input.reference else ""
        ),
    shell:
        "mia-audit explain-privately --pool {params.pool} --values {input.values} {params.reference} --spec {params.spec:q}"
        " --out {output} >{log} 2>&1"


rule explanation_signals:
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        membership="<pool>/membership.parquet",
        values="<results>/{dataset}/private/{architecture}/values.parquet",
    output:
        "<results>/{dataset}-explained/{architecture}/{mechanism}-eps{eps}/signals.parquet",
    log:
        "<results>/logs/explanation_signals/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    benchmark:
        "<results>/benchmarks/explanation_signals/{dataset}-{architecture}-{mechanism}-eps{eps}.tsv"
    wildcard_constraints:
        dataset=one_of(AUDIT.private_explanations),
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=2000,
    params:
        spec=lambda w: slices.explanation_signals_slice(
            AUDIT, w.dataset, w.architecture, w.eps
        ),
        pool=subpath(input.records, parent=True),
    shell:
        "mia-audit explanation-signals --pool {params.pool} --values {input.values} --spec {params.spec:q} --out {output} >{log} 2>&1"


rule private_report:
    input:
        ANSWERS,
        below(SETTINGS, "metrics.parquet"),
    output:
        report(
            [name for name in PRIVATE if name.endswith(("csv", "svg"))],
            caption="../report/private.rst",
            category="Private explanations",
        ),
        [name for name in PRIVATE if not name.endswith(("csv", "svg"))],
    log:
        "<results>/logs/private_report.log",
    benchmark:
        "<results>/benchmarks/private_report.tsv"
    conda:
        "../../envs/environment.yaml"
    params:
        spec=slices.private_report_slice(AUDIT),
        audit=f"--audit {quote(slices.report_slice(AUDIT))}" if SETTINGS else "",
        explainers="--explainers" if ATTACKED else "",
        results=subpath(output[0], ancestor=2),
    shell:
        "mia-audit private-report --results {params.results} --spec {params.spec:q} {params.audit} {params.explainers} >{log} 2>&1"
