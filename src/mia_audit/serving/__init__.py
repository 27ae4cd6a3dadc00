"""A service of private explanations over HTTP: one `PrivateExplainer` for callers with keys and budgets."""
