rule signals:
    input:
        models=lambda w: [
            f"<setting>/models/.jobs/{block}"
            for block in EXPLAINED[w.mechanism][w.block]
        ],
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture="<architecture>/architecture.json",
    output:
        # the stamp of the job; signals are named by the numbers of their models
        "<setting>/signals/{family}/.jobs/{block}",
    log:
        "<results>/logs/signals/{dataset}-{architecture}-{mechanism}-eps{eps}-{family}-{block}.log",
    priority: BEFORE_TRAINING
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **model_job(
            "signals",
            lambda w, input, attempt: requests.explaining_memory(
                placed("signals"), input.architecture, attempt, memory_limit()
            ),
        ),
        minutes_per_model=str(AUDIT.compute.minutes_per_model),
    params:
        usage=f"{results}/benchmarks/signals/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}-{{family}}-{{block}}.tsv",
        spec=lambda w: spec(specs.SignalsSpec.of, w.dataset, w.architecture, w.family),
        batch=AUDIT.compute.micro_batch,
    # the shell computes names of folders, because one more function for each of thousands of jobs would slow planning down
    shell:
        "mia-audit signals --pool $(dirname {input.records}) --architecture {input.architecture}"
        " --models $(dirname $(dirname {input.models[0]})) --shadows {wildcards.block} --spec {params.spec}"
        " --threads {threads} --device {resources.device} --batch {params.batch} --minutes-per-model {resources.minutes_per_model}"
        " --stamp {output} --out $(dirname $(dirname {output})) --usage {params.usage} >{log} 2>&1"


rule merge:
    input:
        membership="<pool>/membership.parquet",
        persons=persons_records,
        signals=lambda w: expand(
            "<setting>/signals/{family}/.jobs/{block}",
            family=FAMILIES[w.architecture],
            block=EXPLAINED[w.mechanism],
            allow_missing=True,
        ),
    output:
        # written out, because constraints do not apply to wildcards inside <setting>
        "<results>/{dataset}/{architecture}/{mechanism}-eps{eps}/signals.parquet",
    log:
        "<results>/logs/merge/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    wildcard_constraints:
        dataset=one_of(AUDIT.datasets),
        architecture=one_of(AUDIT.architectures),
    priority: BEFORE_TRAINING
    conda:
        "../../envs/environment.yaml"
    params:
        usage=f"{results}/benchmarks/merge/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}.tsv",
        spec=lambda w: spec(specs.MergeSpec.of_signals, w.architecture, w.mechanism),
    shell:
        "mia-audit merge --signals $(dirname $(dirname $(dirname {input.signals[0]}))) --membership {input.membership} --records {input.persons} --spec {params.spec} --out {output}"
        " --usage {params.usage} >{log} 2>&1"


rule imported:
    input:
        lambda w: AUDIT.imported[w.dataset].signals,
    output:
        # written out, because constraints do not apply to wildcards inside <setting>
        "<results>/{dataset}/{architecture}/{mechanism}-eps{eps}/signals.parquet",
    log:
        "<results>/logs/imported/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    wildcard_constraints:
        dataset=one_of(AUDIT.imported),
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    shell:
        "cp {input:q} {output} >{log} 2>&1"
