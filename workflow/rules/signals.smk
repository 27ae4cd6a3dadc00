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
        "<setting>/signals/.jobs/{block}",
    log:
        **logs("signals", f"{OF_SETTING}-{{block}}"),
    priority: BEFORE_TRAINING
    conda:
        "../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **REQUESTS.explaining("signals"),
    params:
        spec=lambda w: spec(w, specs.SignalsSpec.from_audit, w.dataset, w.architecture),
        pool=folder(POOL),
        models=folder(f"{SETTING}/models"),
        membership="",
        shadows="{block}",
        out=folder(f"{SETTING}/signals"),
        run=RUN_FILE,
    shell:
        "mia-audit signals --pool {params.pool} --architecture {input.architecture} --models {params.models} --membership {params.membership} --shadows {params.shadows}"
        " --spec {params.spec} --run {params.run} --threads {threads} --stamp {output} --out {params.out} --usage {log.usage} >{log.out} 2>&1"


rule merge:
    input:
        membership="<pool>/membership.parquet",
        persons=persons_records,
        models=lambda w: [
            f"<setting>/models/.jobs/{block}" for block in BLOCKS[w.mechanism]
        ],
        signals=lambda w: [
            f"<setting>/signals/.jobs/{block}" for block in EXPLAINED[w.mechanism]
        ],
    output:
        # written out, because constraints do not apply to wildcards inside <setting>
        signals="<results>/{dataset}/{architecture}/{mechanism}-eps{eps}/signals.parquet",
        training="<results>/{dataset}/{architecture}/{mechanism}-eps{eps}/training.parquet",
    log:
        **logs("merge", OF_SETTING),
    wildcard_constraints:
        dataset=one_of(AUDIT.datasets),
        architecture=one_of(AUDIT.architectures),
    priority: BEFORE_TRAINING
    conda:
        "../envs/environment.yaml"
    params:
        spec=lambda w: spec(w, specs.MergeSpec.from_audit, w.architecture, w.mechanism),
        setting=folder(SETTING),
    shell:
        "mia-audit merge --signals {params.setting}/signals --membership {input.membership} --records {input.persons} --models {params.setting}/models --spec {params.spec}"
        " --training {output.training} --out {output.signals} --usage {log.usage} >{log.out} 2>&1"


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
        "../envs/environment.yaml"
    shell:
        "cp {input:q} {output} >{log} 2>&1"
