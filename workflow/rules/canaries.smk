rule canary_draw:
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
    output:
        directory("<results>/canaries/{dataset}"),
    log:
        **logs("canary_draw", "{dataset}"),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.MODEL_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.CanariesSpec.from_audit),
        pool=folder(POOL),
    shell:
        "mia-audit canary-draw --pool {params.pool} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule canary_bounds:
    input:
        canaries="<results>/canaries/{dataset}",
        architecture="<architecture>/architecture.json",
        public=public_weights,
        public_records=public_records,
    output:
        "<setting>/canaries.csv",
    log:
        **logs("canary_bounds", OF_SETTING),
    conda:
        "../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **REQUESTS.models("canary_bounds"),
    params:
        spec=lambda w: spec(
            w,
            specs.TrainingSpec.from_audit,
            w.dataset,
            w.architecture,
            w.mechanism,
            w.eps,
        ),
        pool=folder(POOL),
        run=RUN_FILE,
    shell:
        "mia-audit canary-bounds --canaries {input.canaries} --pool {params.pool} --architecture {input.architecture}"
        " --public {input.public} --spec {params.spec} --run {params.run} --threads {threads}"
        " --out {output} --usage {log.usage} >{log.out} 2>&1"
