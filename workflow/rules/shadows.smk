rule architecture:
    input:
        "<pool>/records.parquet",
    output:
        "<architecture>/architecture.json",
    log:
        **logs("architecture", OF_ARCHITECTURE),
    priority: 100
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.MODEL_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.ArchitectureSpec.from_audit, w.architecture),
        pool=folder(POOL),
        run=RUN_FILE,
    shell:
        "mia-audit architecture --pool {params.pool} --spec {params.spec} --run {params.run} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule weights:
    input:
        lambda w: audits.weights_file(AUDIT, w.architecture),
        architecture="<architecture>/architecture.json",
    output:
        weights="<architecture>/start.safetensors",
        metadata="<architecture>/start.json",
    log:
        **logs("weights", OF_ARCHITECTURE),
    priority: 100
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.grown(requests.WEIGHTS_MEGABYTES),
    params:
        spec=lambda w: spec(w, specs.WeightsSpec.from_audit, w.architecture),
    shell:
        "mia-audit weights --architecture {input.architecture} --spec {params.spec} --out {output.weights} --usage {log.usage} >{log.out} 2>&1"


rule pretrain:
    input:
        records="<pool>/public.npy",
        table="<pool>/public.parquet",
        architecture="<architecture>/architecture.json",
    output:
        weights="<architecture>/public.safetensors",
        metadata="<architecture>/public.json",
    log:
        **logs("pretrain", OF_ARCHITECTURE),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **REQUESTS.pretraining("pretrain"),
    params:
        spec=lambda w: spec(
            w, specs.PretrainingSpec.from_audit, w.dataset, w.architecture
        ),
        pool=folder(POOL),
        run=RUN_FILE,
    shell:
        "mia-audit pretrain --pool {params.pool} --architecture {input.architecture} --spec {params.spec} --run {params.run}"
        " --threads {threads} --out {output.weights} --usage {log.usage} >{log.out} 2>&1"


rule train:
    # the membership of all models changes with their number, so it is no input: a job draws its own models' training sets
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture="<architecture>/architecture.json",
        public=public_weights,
        public_records=public_records,
    output:
        # the stamp of the job; models are named by their numbers, and existing models are not trained again
        "<setting>/models/.jobs/{block}",
    log:
        **logs("train", f"{OF_SETTING}-{{block}}"),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **REQUESTS.training("train"),
    params:
        spec=lambda w: spec(
            w,
            specs.TrainingSpec.from_audit,
            w.dataset,
            w.architecture,
            w.mechanism,
            w.eps,
        ),
        pool=folder(POOL),
        setting=folder(SETTING),
        run=RUN_FILE,
    shell:
        "mia-audit train --pool {params.pool} --architecture {input.architecture} --public {input.public} --spec {params.spec} --run {params.run}"
        " --shadows {wildcards.block} --threads {threads} --stamp {output} --out {params.setting}/models --usage {log.usage} >{log.out} 2>&1"


rule discard:
    input:
        "<setting>/signals.parquet",
        "<setting>/training.parquet",
    output:
        "<setting>/models/.jobs/discarded",
    log:
        **logs("discard", OF_SETTING),
    priority: BEFORE_TRAINING
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        setting=folder(SETTING),
        shadows=lambda w: f"0-{AUDIT.number_of_models(w.mechanism) - 1}",
        keep=audits.kept_models(AUDIT),
    shell:
        "mia-audit discard --models {params.setting}/models --shadows {params.shadows} --keep {params.keep} --out {output} --usage {log.usage} >{log.out} 2>&1"
