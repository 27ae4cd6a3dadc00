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
        "<results>/logs/explanation_metrics/{dataset}-{architecture}.log",
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **model_job(
            "explanation_metrics",
            lambda w, input, attempt: requests.explaining_memory(
                placed("explanation_metrics"),
                input.architecture,
                attempt,
                memory_limit(),
            ),
        ),
        minutes_per_model=str(AUDIT.compute.minutes_per_model),
    params:
        usage=f"{results}/benchmarks/explanation_metrics/{{dataset}}-{{architecture}}.tsv",
        spec=lambda w: spec(specs.ExplanationMetricsSpec.of, w.dataset, w.architecture),
        pool=subpath(input.records, parent=True),
        batch=AUDIT.compute.micro_batch,
    shell:
        "mia-audit explanation-metrics --pool {params.pool} --architecture {input.architecture} --spec {params.spec}"
        " --threads {threads} --device {resources.device} --batch {params.batch} --maps {output.maps} --curves {output.curves}"
        " --minutes-per-model {resources.minutes_per_model} --out {output.measures} --usage {params.usage} >{log} 2>&1"
