"""Learners: each trains a model on members and computes its outputs. The built-in torch loop is one of them."""

from mia_audit.learners.protocol import (
    Attribution,
    BuildingLearner,
    Compute,
    ExplainedModel,
    ExplanationRequest,
    Learner,
    LearnerFactory,
    ModelSection,
    Summaries,
    SummarisingModel,
    TorchBackedModel,
    TrainedModel,
    TrainedOn,
    estimator,
    learner_named,
    open_learner,
    released,
)
from mia_audit.training.task import Records, TrainingTask

__all__ = [
    "Attribution",
    "BuildingLearner",
    "Compute",
    "ExplainedModel",
    "ExplanationRequest",
    "Learner",
    "LearnerFactory",
    "ModelSection",
    "Records",
    "Summaries",
    "SummarisingModel",
    "TorchBackedModel",
    "TrainedModel",
    "TrainedOn",
    "TrainingTask",
    "estimator",
    "learner_named",
    "open_learner",
    "released",
]
