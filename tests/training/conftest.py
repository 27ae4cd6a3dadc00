"""The tiny models and the table are those of the tests of privacy."""

from ..privacy.conftest import mlp, model_and_shape, table

__all__ = ["mlp", "model_and_shape", "table"]
