rule pool:
    input:
        lambda w: slices.pool_files(AUDIT, w.dataset),
    output:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        public="<pool>/public.npy",
        public_table="<pool>/public.parquet",
    log:
        "<results>/logs/pool/{dataset}.log",
    benchmark:
        "<results>/benchmarks/pool/{dataset}.tsv"
    priority: 100
    conda:
        "../../envs/environment.yaml"
    threads: 8  # it reads images in parallel; no more than there are cores
    params:
        spec=lambda w: slices.pool_slice(AUDIT, w.dataset),
        folder=subpath(output.records, parent=True),
    shell:
        "mia-audit pool --spec {params.spec:q} --threads {threads} --out {params.folder} >{log} 2>&1"


rule membership:
    input:
        "<pool>/records.parquet",
    output:
        "<pool>/membership.parquet",
    log:
        "<results>/logs/membership/{dataset}.log",
    benchmark:
        "<results>/benchmarks/membership/{dataset}.tsv"
    priority: 100
    conda:
        "../../envs/environment.yaml"
    params:
        spec=lambda w: slices.membership_slice(AUDIT, w.dataset),
    shell:
        "mia-audit membership --records {input} --spec {params.spec:q} --out {output} >{log} 2>&1"
