"""The populations with which RMIA compares records: losses of records that no model was trained on, read from matrix files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mia_audit.attacks.io.matrices import read_matrix
from mia_audit.attacks.io.parquet import check_values
from mia_audit.errors import UserError
from mia_audit.signals.name import read_signal
from mia_audit.storage import sha256

KEY = "population"
"""The key of `attacks` for the files of populations, by loss."""


def with_population(options: Mapping[str, Any] | None, models: int) -> dict[str, Any]:
    """Return the attacks' options with each population file replaced by its matrix, float64 [Z records, K models].

    Raises UserError for a matrix that does not fit.
    """
    given = dict(options or {})
    if files := given.get(KEY):
        given[KEY] = {name: _read(name, file, models) for name, file in files.items()}
    return given


def population_files(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the SHA-256 of every file of a population, by file name."""
    files = (Path(file) for file in ((options or {}).get(KEY) or {}).values())
    return {file.name: sha256(file) for file in files if file.is_file()}


def _read(name: str, file: str, models: int) -> np.ndarray:
    signal = read_signal(name)
    if not signal.is_loss:
        raise UserError(f"population: '{name}' is not a loss; rmia compares losses: loss, or loss_t2 for temperature 2")
    matrix, _ = read_matrix(file)
    if matrix.ndim == 2 and matrix.shape[1] != models == matrix.shape[0]:
        matrix = matrix.T
    if matrix.ndim != 2 or matrix.shape[1] != models:
        size = " × ".join(str(number) for number in matrix.shape)
        raise UserError(f"{file}: {size}; expected the population's records × the {models} models that are attacked")
    check_values(matrix, signal, file)
    return np.asfortranarray(matrix, dtype=np.float64)
