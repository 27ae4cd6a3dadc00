rule attack:
    input:
        "<setting>/signals.parquet",
    output:
        "<setting>/scores.parquet",
    log:
        **logs("attack", OF_SETTING),
    priority: BEFORE_EVALUATION
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.attack,
    params:
        spec=lambda w: spec(w, specs.AttackSpec.from_audit, w.dataset),
    shell:
        "mia-audit attack --signals {input} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule evaluate:
    input:
        scores="<setting>/scores.parquet",
        signals="<setting>/signals.parquet",
    output:
        "<setting>/metrics.parquet",
    log:
        **logs("evaluate", OF_SETTING),
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.attack,
    params:
        spec=lambda w: spec(w, specs.EvaluationSpec.from_audit, w.mechanism),
    shell:
        "mia-audit evaluate --scores {input.scores} --signals {input.signals} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"


rule evaluate_groups:
    input:
        scores="<setting>/scores.parquet",
        signals="<setting>/signals.parquet",
        groups="<pool>/groups.parquet",
    output:
        "<setting>/groups.parquet",
    log:
        **logs("evaluate_groups", OF_SETTING),
    conda:
        "../envs/environment.yaml"
    resources:
        mem_mb=REQUESTS.attack,
    params:
        spec=lambda w: spec(w, specs.EvaluationSpec.from_audit),
    shell:
        "mia-audit evaluate-groups --scores {input.scores} --signals {input.signals} --groups {input.groups} --spec {params.spec} --out {output} --usage {log.usage} >{log.out} 2>&1"
