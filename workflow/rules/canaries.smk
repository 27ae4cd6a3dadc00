rule canary_draw:
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
    output:
        directory("<results>/canaries/{dataset}"),
    log:
        "<results>/logs/canary_draw/{dataset}.log",
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=grown(requests.MODEL_MEGABYTES),
    params:
        usage=f"{results}/benchmarks/canary_draw/{{dataset}}.tsv",
        spec=lambda w: spec(specs.CanariesSpec.of),
        pool=subpath(input.records, parent=True),
    shell:
        "mia-audit canary-draw --pool {params.pool} --spec {params.spec} --out {output} --usage {params.usage} >{log} 2>&1"


rule canary_bounds:
    input:
        canaries="<results>/canaries/{dataset}",
        architecture="<architecture>/architecture.json",
        public=public_weights,
        public_records=public_records,
    output:
        "<setting>/canaries.csv",
    log:
        "<results>/logs/canary_bounds/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **model_job("canary_bounds"),
    params:
        usage=f"{results}/benchmarks/canary_bounds/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}.tsv",
        spec=lambda w: spec(
            specs.TrainingSpec.of, w.dataset, w.architecture, w.mechanism, w.eps
        ),
        pool=lambda w: f"{results}/pools/{w.dataset}",
        batch=AUDIT.compute.micro_batch,
    shell:
        "mia-audit canary-bounds --canaries {input.canaries} --pool {params.pool} --architecture {input.architecture}"
        " --public {input.public} --spec {params.spec} --threads {threads} --device {resources.device} --batch {params.batch}"
        " --out {output} --usage {params.usage} >{log} 2>&1"
