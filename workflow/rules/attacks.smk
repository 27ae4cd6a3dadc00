rule attack:
    input:
        "<setting>/signals.parquet",
    output:
        "<setting>/scores.parquet",
    log:
        "<results>/logs/attack/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    priority: BEFORE_EVALUATION
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=attack_memory,
    params:
        usage=f"{results}/benchmarks/attack/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}.tsv",
        spec=lambda w: spec(specs.AttackSpec.of, w.dataset),
    shell:
        "mia-audit attack --signals {input} --spec {params.spec} --out {output} --usage {params.usage} >{log} 2>&1"


rule evaluate:
    input:
        scores="<setting>/scores.parquet",
        signals="<setting>/signals.parquet",
    output:
        "<setting>/metrics.parquet",
    log:
        "<results>/logs/evaluate/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=attack_memory,
    params:
        usage=f"{results}/benchmarks/evaluate/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}.tsv",
        spec=lambda w: spec(specs.EvaluationSpec.of),
    shell:
        "mia-audit evaluate --scores {input.scores} --signals {input.signals} --spec {params.spec} --out {output} --usage {params.usage} >{log} 2>&1"


rule evaluate_groups:
    input:
        scores="<setting>/scores.parquet",
        signals="<setting>/signals.parquet",
        groups="<pool>/groups.parquet",
    output:
        "<setting>/groups.parquet",
    log:
        "<results>/logs/evaluate_groups/{dataset}-{architecture}-{mechanism}-eps{eps}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=attack_memory,
    params:
        usage=f"{results}/benchmarks/evaluate_groups/{{dataset}}-{{architecture}}-{{mechanism}}-eps{{eps}}.tsv",
        spec=lambda w: spec(specs.EvaluationSpec.of),
    shell:
        "mia-audit evaluate-groups --scores {input.scores} --signals {input.signals} --groups {input.groups} --spec {params.spec}"
        " --out {output} --usage {params.usage} >{log} 2>&1"
