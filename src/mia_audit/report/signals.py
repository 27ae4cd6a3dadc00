"""What a signal's name says: whether outputs or explanations are read, and how people call it."""

import re
from dataclasses import dataclass

from mia_audit.explain.catalogue import PRIVATE_LOCAL

OUTPUTS = frozenset({"loss", "confidence"})
FIT_ERROR = "fit_error"
"""How badly the explanation of a record's neighbour fits the record."""
EXPLANATION = re.compile(
    r"(?P<explainer>.+?)(?P<probability>_probability)?(?P<true>_true)?_(?P<summary>variance|l1|l2|linf)"
)
EXPLAINERS = {
    "ixg": "input × gradient",
    "saliency": "saliency",
    "gradcam": "Grad-CAM",
    "ig": "integrated gradients",
    "gradient_shap": "GradientSHAP",
    "llm-global": "the maps' filters",
    "llm-local": "the weighted map",
    "llm-gradient": "the maps' gradient",
    "llm-top": "the strongest maps",
    "local_linear": "the local linear fit",
    "smoothgrad": "SmoothGrad",
    "captum:NoiseTunnel-Saliency": "SmoothGrad (captum)",
}
SUMMARIES = {
    "variance": "variance",
    "l1": "L1 norm",
    "l2": "L2 norm",
    "linf": "largest value",
}


@dataclass(frozen=True)
class Signal:
    """A signal's name, taken apart; `channel` is outputs, explanations, both or other."""

    name: str
    channel: str
    explainer: str | None = None
    quantity: str | None = None
    true_class: bool = False
    summary: str | None = None

    @property
    def label(self) -> str:
        """The signal in words, such as 'L1 norm of input × gradient, probability'."""
        if self.name == FIT_ERROR:
            return "how well the explanation fits the record"
        if self.explainer is None or self.summary is None:
            return self.name
        quantity = ", probability" if self.quantity == "probability" else ""
        true_class = ", true class" if self.true_class else ""
        return f"{SUMMARIES[self.summary]} of {self.explainer_label}{quantity}{true_class}"

    @property
    def explainer_label(self) -> str:
        """The explainer in words; one without words of its own is named as the config does."""
        return explainer_label(self.explainer or "")


def explainer_label(name: str) -> str:
    """Name an explainer in words, from a column's name or as the config writes it."""
    written = name.replace("+", "-")
    if private := PRIVATE_LOCAL.fullmatch(written):
        return f"the private local fit, ε = {private['epsilon']} each"
    return EXPLAINERS.get(written, written.removeprefix("captum:"))


def read_signal(name: str) -> Signal:
    """Take a signal's name apart; parts joined by + are read together, and are `both` when they are of both kinds."""
    parts = [part.strip() for part in name.split("+")]
    if len(parts) > 1:
        channels = {read_signal(part).channel for part in parts}
        return Signal(name, channels.pop() if len(channels) == 1 else "both" if "other" not in channels else "other")
    if name in OUTPUTS:
        return Signal(name, "outputs")
    if name == FIT_ERROR:
        return Signal(name, "explanations")
    match = EXPLANATION.fullmatch(name)
    if match is None:
        return Signal(name, "other")
    quantity = "probability" if match["probability"] else "logit"
    return Signal(name, "explanations", match["explainer"], quantity, bool(match["true"]), match["summary"])
