# finished models; each is attacked with shadow models of the same recipe as references
TARGET = f"{results}/{{dataset}}/{{target}}"
OF_TARGET = "{dataset}-{target}-{mechanism}-eps{eps}"
# a finished model's number follows those of the shadow models
LAST = f"{AUDIT.membership.models:03d}-{AUDIT.membership.models:03d}"


rule target:
    input:
        lambda w: audits.target_files(AUDIT, w.target),
        table="<pool>/records.parquet",
        architecture=lambda w: f"<results>/{reference(w).group}/architecture.json",
    output:
        directory("<results>/{dataset}/{target}/model"),
    log:
        **logs("target", "{dataset}-{target}"),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    resources:
        **REQUESTS.explaining("target"),
    params:
        spec=lambda w: spec(w, specs.TargetSpec.from_audit, w.target),
        pool=folder(POOL),
        run=RUN_FILE,
    shell:
        "mia-audit target --pool {params.pool} --architecture {input.architecture} --spec {params.spec} --run {params.run} --out {output} --usage {log.usage} >{log.out} 2>&1"


use rule signals as target_signals with:
    input:
        model="<results>/{dataset}/{target}/model",
        records="<pool>/records.npy",
        table="<pool>/records.parquet",
        architecture=lambda w: f"<results>/{reference(w).group}/architecture.json",
    output:
        f"<results>/{{dataset}}/{{target}}/{{mechanism}}-eps{{eps}}/signals/.jobs/{LAST}",
    log:
        **logs("target_signals", OF_TARGET),
    resources:
        **REQUESTS.explaining("target_signals"),
    params:
        spec=lambda w: spec(w, specs.SignalsSpec.of_target, w.target),
        pool=folder(POOL),
        models=folder(f"{TARGET}/model"),
        membership=folder(f"{TARGET}/model/membership.parquet"),
        shadows=LAST,
        out=folder(f"{TARGET}/{{mechanism}}-eps{{eps}}/signals"),
        run=RUN_FILE,


rule target_merge:
    input:
        model="<results>/{dataset}/{target}/model",
        references=lambda w: f"<results>/{reference(w).path}/signals.parquet",
        persons=persons_records,
        signals=rules.target_signals.output,
    output:
        "<results>/{dataset}/{target}/{mechanism}-eps{eps}/signals.parquet",
    log:
        **logs("target_merge", OF_TARGET),
    wildcard_constraints:
        dataset=one_of(AUDIT.datasets),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    params:
        spec=lambda w: spec(w, specs.MergeSpec.of_target, w.target),
        folder=folder(f"{TARGET}/{{mechanism}}-eps{{eps}}/signals"),
    shell:
        "mia-audit merge --signals {params.folder} --membership {input.model}/membership.parquet --references {input.references} --records {input.persons}"
        " --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"
