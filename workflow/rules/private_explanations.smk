STUDIED = [
    (dataset, name)
    for dataset in AUDIT.private_explanations
    for name in audits.black_boxes_of(AUDIT, dataset)
]
ANSWERS = [
    f"<results>/{dataset}/private/{name}/answers.parquet" for dataset, name in STUDIED
]


rule black_box:
    input:
        unpack(black_box_models),
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
    output:
        "<results>/{dataset}/private/{black_box}/values.parquet",
    log:
        **logs("black_box", "{dataset}-{black_box}"),
    wildcard_constraints:
        black_box=one_of(name for _, name in STUDIED),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=REQUESTS.grown(requests.MODEL_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.BlackBoxSpec.from_audit, w.dataset, w.black_box),
        models=lambda w, input: (
            str(Path(input.models).parents[1]) if input.models else ""
        ),
        pool=folder(POOL),
    shell:
        "mia-audit black-box --pool {params.pool} --models {params.models} --architecture {input.architecture} --spec {params.spec} --threads {threads} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule explain_privately:
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        values="<results>/{dataset}/private/{black_box}/values.parquet",
        reference=values_without_privacy,
        other=values_of_other_forest,
    output:
        "<results>/{dataset}/private/{black_box}/answers.parquet",
    log:
        **logs("explain_privately", "{dataset}-{black_box}"),
    wildcard_constraints:
        black_box=one_of(name for _, name in STUDIED),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=REQUESTS.grown(requests.MODEL_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.PrivateExplanationsSpec.from_audit, w.dataset),
        pool=folder(POOL),
    shell:
        "mia-audit explain-privately --pool {params.pool} --values {input.values} --reference {input.reference} --other {input.other}"
        " --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule explanation_signals:
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        membership="<pool>/membership.parquet",
        values="<results>/{dataset}/private/{architecture}/values.parquet",
    output:
        "<results>/{dataset}-explained/{architecture}/{mechanism}-eps{eps}/signals.parquet",
    log:
        **logs("explanation_signals", OF_SETTING),
    wildcard_constraints:
        dataset=one_of(AUDIT.private_explanations),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=REQUESTS.grown(requests.MODEL_MEGABYTES),
    params:
        spec=lambda w: spec(
            w,
            specs.ExplanationSignalsSpec.from_audit,
            w.dataset,
            w.architecture,
            w.eps,
        ),
        pool=folder(POOL),
    shell:
        "mia-audit explanation-signals --pool {params.pool} --values {input.values} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"
