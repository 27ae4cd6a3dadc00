"""Local linear explanations that protect the records from which they are computed (Patel, Shokri, Zick 2020)."""

from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PROTOCOLS, Answers, PrivateExplainer
from mia_audit.explain.private_local.terms import Terms

__all__ = ["PROTOCOLS", "Answers", "ExplanationSet", "PrivateExplainer", "Terms"]
