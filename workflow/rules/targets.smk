# finished models; each is attacked with shadow models of the same recipe as references


rule target:
    input:
        lambda w: audits.target_files(AUDIT, w.target),
        table="<pool>/records.parquet",
        architecture=lambda w: f"<results>/{reference(w).group}/architecture.json",
    output:
        directory("<results>/{dataset}/{target}/model"),
    log:
        "<results>/logs/target/{dataset}-{target}.log",
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    resources:
        **model_job(
            "target",
            lambda w, input, attempt: requests.explaining_memory(
                placed("target"), input.architecture, attempt, memory_limit()
            ),
        ),
    params:
        usage=f"{results}/benchmarks/target/{{dataset}}-{{target}}.tsv",
        spec=lambda w: spec(specs.TargetSpec.of, w.target),
        pool=subpath(input.table, parent=True),
    shell:
        "mia-audit target --pool {params.pool} --architecture {input.architecture} --spec {params.spec}"
        " --device {resources.device} --out {output} --usage {params.usage} >{log} 2>&1"


rule target_signals:
    input:
        model="<results>/{dataset}/{target}/model",
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture=lambda w: f"<results>/{reference(w).group}/architecture.json",
    output:
        directory("<results>/{dataset}/{target}/{mechanism}-eps{eps}/signals/{family}"),
    log:
        "<results>/logs/target_signals/{dataset}-{target}-{mechanism}-eps{eps}-{family}.log",
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **model_job(
            "target_signals",
            lambda w, input, attempt: requests.explaining_memory(
                placed("target_signals"), input.architecture, attempt, memory_limit()
            ),
        ),
        minutes_per_model=str(AUDIT.compute.minutes_per_model),
    params:
        usage=f"{results}/benchmarks/target_signals/{{dataset}}-{{target}}-{{mechanism}}-eps{{eps}}-{{family}}.tsv",
        spec=lambda w: spec(specs.SignalsSpec.of_target, w.target, w.family),
        pool=subpath(input.records, parent=True),
        number=AUDIT.membership.models,
        batch=AUDIT.compute.micro_batch,
    shell:
        "mia-audit signals --pool {params.pool} --architecture {input.architecture} --models {input.model} --shadows {params.number}-{params.number} --spec {params.spec}"
        " --membership {input.model}/membership.parquet --threads {threads} --device {resources.device} --batch {params.batch}"
        " --minutes-per-model {resources.minutes_per_model} --out {output} --usage {params.usage} >{log} 2>&1"


rule target_merge:
    input:
        model="<results>/{dataset}/{target}/model",
        references=lambda w: f"<results>/{reference(w).path}/signals.parquet",
        persons=persons_records,
        signals=lambda w: expand(
            "<results>/{dataset}/{target}/{mechanism}-eps{eps}/signals/{family}",
            family=FAMILIES[reference(w).architecture],
            allow_missing=True,
        ),
    output:
        "<results>/{dataset}/{target}/{mechanism}-eps{eps}/signals.parquet",
    log:
        "<results>/logs/target_merge/{dataset}-{target}-{mechanism}-eps{eps}.log",
    wildcard_constraints:
        dataset=one_of(AUDIT.datasets),
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    params:
        usage=f"{results}/benchmarks/target_merge/{{dataset}}-{{target}}-{{mechanism}}-eps{{eps}}.tsv",
        spec=lambda w: spec(specs.MergeSpec.of_target, w.target),
    shell:
        "mia-audit merge --signals $(dirname {input.signals[0]}) --membership {input.model}/membership.parquet"
        " --references {input.references} --records {input.persons} --spec {params.spec} --out {output} --usage {params.usage} >{log} 2>&1"
