"""Local linear explanations that are private with respect to the records they are computed from (Patel, Shokri, Zick 2020)."""

from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PROTOCOLS, Answers, PrivateExplainer
from mia_audit.explain.private_local.terms import Terms

__all__ = ["PROTOCOLS", "Answers", "ExplanationSet", "PrivateExplainer", "Terms"]
