rule signals:
    input:
        models=lambda w: [f"<setting>/models/{block}" for block in EXPLAINED[w.block]],
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture="<architecture>/architecture.json",
        membership=training_records,
    output:
        "<setting>/signals/{family}/{block}.parquet",
    log:
        "<results>/logs/signals/{dataset}-{architecture}-{mechanism}-eps{eps}-{family}-{block}.log",
    benchmark:
        "<results>/benchmarks/signals/{dataset}-{architecture}-{mechanism}-eps{eps}-{family}-{block}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=2000,
        gpu=slices.cards_per_job(AUDIT),
        # a resource, since a param that changes would compute again
        device=AUDIT.compute.device,
    params:
        spec=lambda w: signals_spec(w.dataset, w.architecture, w.family),
        batch=AUDIT.compute.batch,
    # the shell finds the folder, as for `train`
    shell:
        "mia-audit signals --pool $(dirname {input.records}) --architecture {input.architecture} --models {input.models} --spec {params.spec:q}"
        " --family {wildcards.family} --membership {input.membership} --threads {threads} --device {resources.device}"
        " --batch {params.batch} --out {output} >{log} 2>&1"


rule gather:
    input:
        membership="<pool>/membership.parquet",
        signals=lambda w: expand(
            "<setting>/signals/{family}/{block}.parquet",
            family=FAMILIES[w.architecture],
            block=EXPLAINED,
            allow_missing=True,
        ),
    output:
        # written out: a constraint does not reach wildcards inside <setting>
        "<results>/{dataset}/{architecture}/{mechanism}-eps{eps}/signals.parquet",
    log:
        "<results>/logs/gather/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    benchmark:
        "<results>/benchmarks/gather/{dataset}-{architecture}-{mechanism}-eps{eps}.tsv"
    wildcard_constraints:
        dataset=one_of(AUDIT.datasets),
    conda:
        "../../envs/environment.yaml"
    params:
        families=lambda w, input: slices.by_family(
            input.signals, FAMILIES[w.architecture]
        ),
    shell:
        "mia-audit gather {params.families} --membership {input.membership} --out {output} >{log} 2>&1"


rule imported:
    input:
        lambda w: AUDIT.imported[w.dataset].signals,
    output:
        # written out: a constraint does not reach wildcards inside <setting>
        "<results>/{dataset}/{architecture}/{mechanism}-eps{eps}/signals.parquet",
    log:
        "<results>/logs/imported/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    benchmark:
        "<results>/benchmarks/imported/{dataset}-{architecture}-{mechanism}-eps{eps}.tsv"
    wildcard_constraints:
        dataset=one_of(AUDIT.imported),
    conda:
        "../../envs/environment.yaml"
    shell:
        "cp {input:q} {output} >{log} 2>&1"
