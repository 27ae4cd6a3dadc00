# %% [markdown]
# # A figure of one's own, from the Parquet files of an audit

# %%
import sys

import matplotlib.pyplot as plt
import polars as pl

results = sys.argv[1] if len(sys.argv) > 1 else "results/digits"
metrics = pl.read_parquet(f"{results}/**/metrics.parquet", include_file_paths="file").filter(~pl.col("null_control"))
setting = pl.col("file").str.extract(r"([^/\\]+)[/\\]metrics.parquet$").alias("setting")
means = metrics.group_by(setting, "attack", maintain_order=True).agg(pl.col("auc").mean(), sd=pl.col("auc").std())

figure, axes = plt.subplots(layout="constrained")
for (name,), rows in means.group_by("setting", maintain_order=True):
    axes.errorbar(rows["attack"], rows["auc"], rows["sd"], fmt="o", label=name)
axes.set_ylabel("AUC")
axes.legend()
figure.savefig("auc.svg")
