rule interpretability:
    input:
        models=lambda w: below(
            INTERPRETED[f"{w.dataset}/{w.architecture}"],
            *[f"models/{block}" for block in MEASURED],
        ),
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture="<architecture>/architecture.json",
    output:
        measures="<architecture>/interpretability.parquet",
        curves="<architecture>/curves.parquet",
        maps="<architecture>/explanations.parquet",
    log:
        "<results>/logs/interpretability/{dataset}-{architecture}.log",
    benchmark:
        "<results>/benchmarks/interpretability/{dataset}-{architecture}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=2000,
        gpu=slices.cards_per_job(AUDIT),
        # a resource, since a param that changes would compute again
        device=AUDIT.compute.device,
    params:
        spec=lambda w: slices.interpretability_slice(
            AUDIT, f"{w.dataset}/{w.architecture}"
        ),
        pool=subpath(input.records, parent=True),
        blocks=MEASURED,
        batch=AUDIT.compute.batch,
    shell:
        "mia-audit interpretability --pool {params.pool} --architecture {input.architecture} --blocks {params.blocks}"
        " --spec {params.spec:q} --threads {threads} --device {resources.device} --batch {params.batch} --maps {output.maps}"
        " --curves {output.curves} --out {output.measures} >{log} 2>&1"
