"""A pipeline that imputes, codes a column of categories one-hot and standardises the others, before it classifies.

Tables have no missing values (docs/how-to/pools.md), so here a number that no column has, -1, stands for them.
"""

from mia_audit.learners import estimator


@estimator()
def imputed(categories="0", missing=-1.0, trees=50):
    """`categories` names the columns that hold categories as numbers, such as "0,3"."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(missing_values=missing, strategy="median"), StandardScaler())
    chosen = [int(column) for column in str(categories).split(",")]
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), chosen), remainder=numbers
    )
    return make_pipeline(columns, ExtraTreesClassifier(trees, min_samples_leaf=2))
