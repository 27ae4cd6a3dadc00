def public_weights(wildcards):
    name = audits.initial_weights(AUDIT, wildcards.architecture)
    return f"<architecture>/{name}" if name else []


def public_records(wildcards):
    reads = audits.reads_public_records(
        AUDIT, wildcards.architecture, wildcards.mechanism
    )
    return ["<pool>/public.npy", "<pool>/public.parquet"] if reads else []


def persons_records(wildcards):
    by_person = AUDIT.datasets[wildcards.dataset].by_person
    return "<pool>/records.parquet" if by_person else []


def black_box_models(wildcards):
    explained = audits.explained_settings(AUDIT, wildcards.dataset)
    setting = explained.get(wildcards.black_box)
    if setting is None:
        return {"models": [], "architecture": []}
    return {
        "models": f"<results>/{setting.path}/models/.jobs/{BLOCKS[setting.mechanism][0]}",
        "architecture": f"<results>/{setting.group}/architecture.json",
    }


def values_without_privacy(wildcards):
    explained = audits.explained_settings(AUDIT, wildcards.dataset)
    setting = explained.get(wildcards.black_box)
    for name, other in explained.items():
        if setting and (other.group, other.epsilon) == (setting.group, "inf"):
            return f"<results>/{wildcards.dataset}/private/{name}/values.parquet"
    return []


def values_of_other_forest(wildcards):
    for pair in OVERFITTED.items():
        if wildcards.black_box in pair and set(pair) <= {
            *audits.black_boxes_of(AUDIT, wildcards.dataset)
        }:
            (other,) = set(pair) - {wildcards.black_box}
            return f"<results>/{wildcards.dataset}/private/{other}/values.parquet"
    return []


def reference(wildcards):
    return audits.references(AUDIT, wildcards.target)
