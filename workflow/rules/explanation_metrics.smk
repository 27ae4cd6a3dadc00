rule explanation_metrics:
    input:
        models=lambda w: blocks_of(
            COMPARED[f"{w.dataset}/{w.architecture}"],
            lambda mechanism: audits.compared_blocks(AUDIT, mechanism),
        ),
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture="<architecture>/architecture.json",
    output:
        measures="<architecture>/explanation_metrics.parquet",
        curves="<architecture>/curves.parquet",
        maps="<architecture>/explanations.parquet",
    log:
        **logs("explanation_metrics", OF_ARCHITECTURE),
    conda:
        "../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **REQUESTS.explaining("explanation_metrics"),
    params:
        spec=lambda w: spec(
            w, specs.ExplanationMetricsSpec.from_audit, w.dataset, w.architecture
        ),
        pool=folder(POOL),
        run=RUN_FILE,
    shell:
        "mia-audit explanation-metrics --pool {params.pool} --architecture {input.architecture} --spec {params.spec}"
        " --run {params.run} --threads {threads} --maps {output.maps} --curves {output.curves}"
        " --out {output.measures} --usage {log.usage} >{log.out} 2>&1"
