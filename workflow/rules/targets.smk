# finished models, each attacked with the shadow models of its own recipe


def reference(wildcards):
    return audits.references(AUDIT, wildcards.target)


rule target:
    input:
        lambda w: audits.target_files(AUDIT, w.target),
        table="<pool>/records.parquet",
        architecture=lambda w: f"<results>/{reference(w).group}/architecture.json",
    output:
        directory("<results>/{dataset}/{target}/model"),
    log:
        "<results>/logs/target/{dataset}-{target}.log",
    benchmark:
        "<results>/benchmarks/target/{dataset}-{target}.tsv"
    conda:
        "../../envs/environment.yaml"
    resources:
        **requests.model_job(AUDIT),
    params:
        spec=lambda w: spec(specs.TargetSpec.of, w.target),
        pool=subpath(input.table, parent=True),
    shell:
        "mia-audit target --pool {params.pool} --architecture {input.architecture} --spec {params.spec}"
        " --device {resources.device} --out {output} >{log} 2>&1"


rule target_signals:
    input:
        model="<results>/{dataset}/{target}/model",
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture=lambda w: f"<results>/{reference(w).group}/architecture.json",
    output:
        "<results>/{dataset}/{target}/{mechanism}-eps{eps}/signals/{family}/model.parquet",
    log:
        "<results>/logs/target_signals/{dataset}-{target}-{mechanism}-eps{eps}-{family}.log",
    benchmark:
        "<results>/benchmarks/target_signals/{dataset}-{target}-{mechanism}-eps{eps}-{family}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **requests.model_job(AUDIT),
        minutes_per_model=str(AUDIT.compute.minutes_per_model),
    params:
        spec=lambda w: spec(specs.SignalsSpec.of_target, w.target, w.family),
        pool=subpath(input.records, parent=True),
        models=subpath(input.model, parent=True),
        batch=AUDIT.compute.micro_batch,
    shell:
        "mia-audit signals --pool {params.pool} --architecture {input.architecture} --models {params.models} --spec {params.spec}"
        " --membership {input.model}/membership.parquet --threads {threads} --device {resources.device} --batch {params.batch}"
        " --minutes-per-model {resources.minutes_per_model} --out {output} >{log} 2>&1"


rule target_merge:
    input:
        model="<results>/{dataset}/{target}/model",
        references=lambda w: f"<results>/{reference(w).path}/signals.parquet",
        signals=lambda w: expand(
            "<results>/{dataset}/{target}/{mechanism}-eps{eps}/signals/{family}/model.parquet",
            family=FAMILIES[reference(w).architecture],
            allow_missing=True,
        ),
    output:
        "<results>/{dataset}/{target}/{mechanism}-eps{eps}/signals.parquet",
    log:
        "<results>/logs/target_merge/{dataset}-{target}-{mechanism}-eps{eps}.log",
    benchmark:
        "<results>/benchmarks/target_merge/{dataset}-{target}-{mechanism}-eps{eps}.tsv"
    wildcard_constraints:
        dataset=one_of(AUDIT.datasets),
    conda:
        "../../envs/environment.yaml"
    params:
        spec=lambda w: spec(specs.MergeSpec.of_target, w.target),
    shell:
        "mia-audit merge --signals $(dirname $(dirname {input.signals[0]})) --membership {input.model}/membership.parquet"
        " --references {input.references} --spec {params.spec} --out {output} >{log} 2>&1"
