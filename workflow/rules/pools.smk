rule pool:
    input:
        # changes are noticed by the files' digests in the specification, not by their modification times
        lambda w: [ancient(f) for f in audits.files_of(AUDIT.datasets[w.dataset])],
    output:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        public="<pool>/public.npy",
        public_table="<pool>/public.parquet",
    log:
        "<results>/logs/pool/{dataset}.log",
    priority: 100
    conda:
        "../../envs/environment.yaml"
    threads: 8  # images are read in parallel; Snakemake lowers this to the number of cores
    resources:
        mem_mb=grown(requests.POOL_MEGABYTES),
    params:
        usage=f"{results}/benchmarks/pool/{{dataset}}.tsv",
        spec=lambda w: spec(specs.PoolSpec.of, w.dataset),
        folder=subpath(output.records, parent=True),
    shell:
        "mia-audit pool --spec {params.spec} --threads {threads} --out {params.folder} --usage {params.usage} >{log} 2>&1"


rule groups:
    input:
        lambda w: audits.group_files(AUDIT, w.dataset),
        table="<pool>/records.parquet",
    output:
        "<pool>/groups.parquet",
    log:
        "<results>/logs/groups/{dataset}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=grown(requests.POOL_MEGABYTES),
    params:
        usage=f"{results}/benchmarks/groups/{{dataset}}.tsv",
        spec=lambda w: spec(specs.GroupsSpec.of, w.dataset),
        folder=subpath(input.table, parent=True),
    shell:
        "mia-audit groups --pool {params.folder} --spec {params.spec} --out {output} --usage {params.usage} >{log} 2>&1"


rule membership:
    input:
        "<pool>/records.parquet",
    output:
        "<pool>/membership.parquet",
    log:
        "<results>/logs/membership/{dataset}.log",
    priority: 100
    conda:
        "../../envs/environment.yaml"
    params:
        usage=f"{results}/benchmarks/membership/{{dataset}}.tsv",
        spec=lambda w: spec(specs.MembershipSpec.of, w.dataset),
    shell:
        "mia-audit membership --records {input} --spec {params.spec} --out {output} --usage {params.usage} >{log} 2>&1"
