rule pool:
    input:
        # changes are noticed by the files' digests in the specification, not by their modification times
        lambda w: [ancient(f) for f in AUDIT.datasets[w.dataset].files],
    output:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        public="<pool>/public.npy",
        public_table="<pool>/public.parquet",
    log:
        **logs("pool", "{dataset}"),
    priority: 100
    conda:
        "../envs/environment.yaml"
    threads: 8  # images are read in parallel; Snakemake lowers this to the number of cores
    resources:
        mem_mb=REQUESTS.grown(requests.POOL_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.PoolSpec.from_audit, w.dataset),
        folder=folder(POOL),
    shell:
        "mia-audit pool --spec {params.spec} --threads {threads} --out {params.folder} --usage {log.usage} >{log.out} 2>&1"


rule groups:
    input:
        lambda w: audits.group_files(AUDIT, w.dataset),
        table="<pool>/records.parquet",
    output:
        "<pool>/groups.parquet",
    log:
        **logs("groups", "{dataset}"),
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.POOL_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.GroupsSpec.from_audit, w.dataset),
        folder=folder(POOL),
    shell:
        "mia-audit groups --pool {params.folder} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule membership:
    input:
        "<pool>/records.parquet",
    output:
        "<pool>/membership.parquet",
    log:
        **logs("membership", "{dataset}"),
    priority: 100
    conda:
        "../envs/environment.yaml"
    params:
        spec=lambda w: spec(w, specs.MembershipSpec.from_audit, w.dataset),
    shell:
        "mia-audit membership --records {input} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"
