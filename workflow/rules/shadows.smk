rule architecture:
    input:
        "<pool>/records.parquet",
    output:
        "<architecture>/architecture.json",
    log:
        "<results>/logs/architecture/{dataset}-{architecture}.log",
    benchmark:
        "<results>/benchmarks/architecture/{dataset}-{architecture}.tsv"
    priority: 100
    conda:
        "../../envs/environment.yaml"
    resources:
        # a resource, so that a mechanism which is added to the config changes no description, and retrains nothing
        private=lambda w: int(slices.trained_privately(AUDIT, w.architecture)),
    params:
        spec=lambda w: slices.architecture_slice(AUDIT, w.architecture),
        pool=subpath(input[0], parent=True),
    shell:
        "mia-audit architecture --pool {params.pool} --spec {params.spec:q} --private {resources.private} --out {output}"
        " >{log} 2>&1"


rule weights:
    input:
        lambda w: slices.weights_file(AUDIT, w.architecture),
        architecture="<architecture>/architecture.json",
    output:
        weights="<architecture>/start.safetensors",
        facts="<architecture>/start.json",
    log:
        "<results>/logs/weights/{dataset}-{architecture}.log",
    benchmark:
        "<results>/benchmarks/weights/{dataset}-{architecture}.tsv"
    priority: 100
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=4000,
    params:
        spec=lambda w: slices.weights_slice(AUDIT, w.architecture),
    shell:
        "mia-audit weights --architecture {input.architecture} --spec {params.spec:q} --out {output.weights} >{log} 2>&1"


rule pretrain:
    input:
        records="<pool>/public.npy",
        table="<pool>/public.parquet",
        architecture="<architecture>/architecture.json",
    output:
        weights="<architecture>/public.safetensors",
        facts="<architecture>/public.json",
    log:
        "<results>/logs/pretrain/{dataset}-{architecture}.log",
    benchmark:
        "<results>/benchmarks/pretrain/{dataset}-{architecture}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=2000,
        gpu=slices.cards_per_job(AUDIT),
        # resources, since a param that changes would retrain
        device=AUDIT.compute.device,
        checkpoint_seconds=AUDIT.compute.checkpoint_seconds,
    params:
        spec=lambda w: slices.pretraining_slice(AUDIT, w.dataset, w.architecture),
        pool=subpath(input.records, parent=True),
        folder=subpath(output.weights, parent=True),
    shell:
        "mia-audit pretrain --pool {params.pool} --architecture {input.architecture} --spec {params.spec:q}"
        " --threads {threads} --device {resources.device} --checkpoints {params.folder}/.checkpoints"
        " --checkpoint-seconds {resources.checkpoint_seconds} --out {output.weights} >{log} 2>&1"


rule train:
    input:
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        membership="<pool>/membership.parquet",
        architecture="<architecture>/architecture.json",
        public=public_weights,
        public_records=public_records,
    output:
        directory("<setting>/models/{block}"),
    log:
        "<results>/logs/train/{dataset}-{architecture}-{mechanism}-eps{eps}-{block}.log",
    benchmark:
        "<results>/benchmarks/train/{dataset}-{architecture}-{mechanism}-eps{eps}-{block}.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: AUDIT.compute.threads
    resources:
        mem_mb=2000,
        gpu=slices.cards_per_job(AUDIT),
        device=AUDIT.compute.device,
        checkpoint_seconds=AUDIT.compute.checkpoint_seconds,
        # a resource, so that a change of it reruns nothing
        keep_going=int(AUDIT.compute.keep_going),
    params:
        spec=lambda w: training_spec(w.dataset, w.architecture, w.mechanism, w.eps),
        batch=AUDIT.compute.batch,
    # the shell finds folders: a function more a job is felt where thousands are planned
    shell:
        "mia-audit train --pool $(dirname {input.records}) --architecture {input.architecture} --public {input.public} --spec {params.spec:q}"
        " --shadows {wildcards.block} --threads {threads} --device {resources.device} --batch {params.batch}"
        " --checkpoints $(dirname {output})/.checkpoints --checkpoint-seconds {resources.checkpoint_seconds}"
        " --keep-going {resources.keep_going} --out {output} >{log} 2>&1"


rule training:
    input:
        expand("<setting>/models/{block}", block=BLOCKS, allow_missing=True),
    output:
        "<setting>/training.parquet",
    log:
        "<results>/logs/training/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    benchmark:
        "<results>/benchmarks/training/{dataset}-{architecture}-{mechanism}-eps{eps}.tsv"
    conda:
        "../../envs/environment.yaml"
    params:
        tables=lambda w, input: [f"{block}/training.parquet" for block in input],
    shell:
        "mia-audit gather --training {params.tables} --out {output} >{log} 2>&1"


rule cost:
    input:
        below(TRAINED, "training.parquet"),
    output:
        "<results>/benchmarks/cost.csv",
    log:
        "<results>/logs/cost.log",
    benchmark:
        "<results>/benchmarks/cost.tsv"
    conda:
        "../../envs/environment.yaml"
    params:
        spec=slices.cost_slice(AUDIT),
        results=subpath(output[0], ancestor=2),
    shell:
        "mia-audit cost --results {params.results} --spec {params.spec:q} --out {output} >{log} 2>&1"
