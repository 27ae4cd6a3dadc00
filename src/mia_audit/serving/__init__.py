"""A service of private explanations over HTTP: callers with keys and budgets in front of one `PrivateExplainer`."""
