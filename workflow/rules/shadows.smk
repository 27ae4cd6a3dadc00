PREFLIGHT = (
    "<results>/benchmarks/preflight/{dataset}/{architecture}/{mechanism}-eps{eps}.tsv"
)


rule architecture:
    input:
        "<pool>/records.parquet",
    output:
        "<architecture>/architecture.json",
    log:
        "<results>/logs/architecture/{dataset}-{architecture}.log",
    priority: 100
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=grown(requests.MODEL_MEGABYTES),
        # a resource and not a param, so that adding a mechanism to the config retrains nothing
        private=lambda w: int(audits.trained_per_record(AUDIT, w.architecture)),
    params:
        usage=f"{results}/benchmarks/architecture/{{dataset}}-{{architecture}}.tsv",
        spec=lambda w: spec(specs.ArchitectureSpec.of, w.architecture),
        pool=subpath(input[0], parent=True),
        limits=LIMITS,
    shell:
        "mia-audit architecture --pool {params.pool} --spec {params.spec} --private {resources.private} --limits {params.limits} --out {output}"
        " --usage {params.usage} >{log} 2>&1"


rule weights:
    input:
        lambda w: audits.weights_file(AUDIT, w.architecture),
        architecture="<architecture>/architecture.json",
    output:
        weights="<architecture>/start.safetensors",
        metadata="<architecture>/start.json",
    log:
        "<results>/logs/weights/{dataset}-{architecture}.log",
    priority: 100
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=grown(requests.WEIGHTS_MEGABYTES),
    params:
        usage=f"{results}/benchmarks/weights/{{dataset}}-{{architecture}}.tsv",
        spec=lambda w: spec(specs.WeightsSpec.of, w.architecture),
    shell:
        "mia-audit weights --architecture {input.architecture} --spec {params.spec} --out {output.weights} --usage {params.usage} >{log} 2>&1"


rule pretrain:
    input:
        records="<pool>/public.npy",
        table="<pool>/public.parquet",
        architecture="<architecture>/architecture.json",
    output:
        weights="<architecture>/public.safetensors",
        metadata="<architecture>/public.json",
    log:
        "<results>/logs/pretrain/{dataset}-{architecture}.log",
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **model_job(
            "pretrain",
            lambda w, input, attempt: requests.pretraining_memory(
                placed("pretrain"),
                w.architecture,
                input.architecture,
                attempt,
                memory_limit(),
            ),
        ),
        # a resource and not a param, because a changed param would train models again
        checkpoint_seconds=AUDIT.compute.checkpoint_seconds,
    params:
        usage=f"{results}/benchmarks/pretrain/{{dataset}}-{{architecture}}.tsv",
        spec=lambda w: spec(specs.PretrainingSpec.of, w.dataset, w.architecture),
        pool=subpath(input.records, parent=True),
        folder=subpath(output.weights, parent=True),
    shell:
        "mia-audit pretrain --pool {params.pool} --architecture {input.architecture} --spec {params.spec}"
        " --threads {threads} --device {resources.device} --checkpoints {params.folder}/.checkpoints"
        " --checkpoint-seconds {resources.checkpoint_seconds} --out {output.weights} --usage {params.usage} >{log} 2>&1"


rule preflight:
    # trains the first epoch of the setting's first model, from which the setting's first job continues
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture="<architecture>/architecture.json",
        public=public_weights,
        public_records=public_records,
    output:
        PREFLIGHT,
    log:
        "<results>/logs/preflight/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    wildcard_constraints:
        dataset=one_of(AUDIT.datasets),
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **model_job(
            "preflight",
            lambda w, input, attempt: requests.training_memory(
                placed("preflight"),
                w.architecture,
                w.mechanism,
                input.architecture,
                attempt,
                memory_limit(),
            ),
        ),
        keep_going=int(AUDIT.compute.keep_going),
        minutes_per_model=str(AUDIT.compute.minutes_per_model),
    params:
        spec=lambda w: spec(
            specs.TrainingSpec.of, w.dataset, w.architecture, w.mechanism, w.eps
        ),
        batch=AUDIT.compute.micro_batch,
        models=f"{results}/{{dataset}}/{{architecture}}/{{mechanism}}-eps{{eps}}/models",
    # in a separate folder, because a model that exists would not be trained
    shell:
        "rm -rf {params.models}/.preflight;"
        " mia-audit train --pool $(dirname {input.records}) --architecture {input.architecture} --public {input.public} --spec {params.spec}"
        " --shadows 0-0 --first-epoch --threads {threads} --device {resources.device} --batch {params.batch}"
        " --checkpoints {params.models}/.checkpoints --checkpoint-seconds 0"
        " --keep-going {resources.keep_going} --minutes-per-model {resources.minutes_per_model}"
        " --out {params.models}/.preflight --usage {output} >{log} 2>&1;"
        " rm -rf {params.models}/.preflight"


rule train:
    # the membership of all models changes with their number, so it is no input: a job draws its own models' training sets
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture="<architecture>/architecture.json",
        public=public_weights,
        public_records=public_records,
        preflight=ancient(PREFLIGHT) if audits.has_preflight(AUDIT) else [],
    output:
        # the stamp of the job; models are named by their numbers, and existing models are not trained again
        "<setting>/models/.jobs/{block}",
    log:
        "<results>/logs/train/{dataset}-{architecture}-{mechanism}-eps{eps}-{block}.log",
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        **model_job(
            "train",
            lambda w, input, attempt: requests.training_memory(
                placed("train"),
                w.architecture,
                w.mechanism,
                input.architecture,
                attempt,
                memory_limit(),
                input.preflight or None,
            ),
        ),
        # resources and not params, because changed params would train models again
        checkpoint_seconds=AUDIT.compute.checkpoint_seconds,
        keep_going=int(AUDIT.compute.keep_going),
        minutes_per_model=str(AUDIT.compute.minutes_per_model),
        floor=lambda w: str(
            audits.floor_of(AUDIT, w.dataset, w.architecture, w.mechanism)
        ),
    params:
        usage=f"{results}/benchmarks/train/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}-{{block}}.tsv",
        spec=lambda w: spec(
            specs.TrainingSpec.of, w.dataset, w.architecture, w.mechanism, w.eps
        ),
        batch=AUDIT.compute.micro_batch,
    # the shell computes names of folders, because one more function for each of thousands of jobs would slow planning down
    shell:
        "mia-audit train --pool $(dirname {input.records}) --architecture {input.architecture} --public {input.public} --spec {params.spec}"
        " --shadows {wildcards.block} --threads {threads} --device {resources.device} --batch {params.batch}"
        " --checkpoints $(dirname $(dirname {output}))/.checkpoints --checkpoint-seconds {resources.checkpoint_seconds}"
        " --keep-going {resources.keep_going} --minutes-per-model {resources.minutes_per_model} --floor {resources.floor}"
        " --stamp {output} --out $(dirname $(dirname {output})) --usage {params.usage} >{log} 2>&1"


rule training:
    input:
        lambda w: [f"<setting>/models/.jobs/{block}" for block in BLOCKS[w.mechanism]],
    output:
        "<setting>/training.parquet",
    log:
        "<results>/logs/training/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    priority: SHORT
    conda:
        "../../envs/environment.yaml"
    params:
        usage=f"{results}/benchmarks/training/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}.tsv",
        spec=lambda w: spec(specs.MergeSpec.of_training, w.mechanism),
        models=subpath(input[0], ancestor=2),
    shell:
        "mia-audit merge --training {params.models} --spec {params.spec} --out {output} --usage {params.usage} >{log} 2>&1"


rule discard:
    input:
        "<setting>/signals.parquet",
        "<setting>/training.parquet",
    output:
        "<setting>/models/.jobs/discarded",
    log:
        "<results>/logs/discard/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    priority: BEFORE_TRAINING
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        usage=f"{results}/benchmarks/discard/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}.tsv",
        models=subpath(output[0], ancestor=2),
        shadows=lambda w: f"0-{AUDIT.number_of_models(w.mechanism) - 1}",
        keep=audits.kept_models(AUDIT),
    shell:
        "mia-audit discard --models {params.models} --shadows {params.shadows} --keep {params.keep} --out {output} --usage {params.usage} >{log} 2>&1"
