"""Random numbers that training's privacy rests on: their distribution, their key, and what enters it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from mia_audit.config.schema import Mechanism, Training
from mia_audit.models.architecture import describe
from mia_audit.models.inputs import Inputs
from mia_audit.privacy.noise import Stream, content_digest, seed_layers, training_key
from mia_audit.registry import forgotten_files
from mia_audit.training.shadow import Recipe, train_shadow

KEY = bytes(range(32))
RECORDS = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
LABELS = torch.arange(60) % 3
MEMBERS = np.arange(60) < 40


def noise(key: bytes = KEY, count: int = 3000, draws: int = 1) -> torch.Tensor:
    stream = Stream(key, "noise")
    return [stream.add_noise(torch.zeros(count), 1.0) for _ in range(draws)][-1]


def test_noise_is_normal_and_uniform_numbers_are_uniform() -> None:
    assert stats.kstest(noise(count=200_000).numpy(), "norm").pvalue > 0.01
    assert stats.kstest(Stream(KEY, "batches").uniform(200_000).numpy(), "uniform").pvalue > 0.01


def test_a_draw_is_a_function_of_key_purpose_and_counter() -> None:
    later = Stream(KEY, "noise")
    later.counter = 2
    assert torch.equal(later.add_noise(torch.zeros(3000), 1.0), noise(draws=3))
    others = [noise(), noise(draws=2), Stream(KEY, "other").add_noise(torch.zeros(3000), 1.0)]
    assert np.abs(np.corrcoef(torch.stack(others)) - np.eye(3)).max() < 0.08


def test_longer_vectors_and_deviations_by_coordinate_have_the_same_noise() -> None:
    assert torch.equal(noise(count=200_000)[:3000], noise())
    scaled = Stream(KEY, "noise").add_noise(torch.zeros(3000), torch.full((3000,), 2.0, dtype=torch.float64))
    assert torch.equal(scaled, 2 * noise())


def test_every_bit_of_the_key_matters() -> None:
    drawn = [noise(), *(noise((int.from_bytes(KEY, "big") ^ 1 << bit).to_bytes(32, "big")) for bit in range(256))]
    assert np.abs(np.corrcoef(torch.stack(drawn)) - np.eye(257)).max() < 0.12


def found_by_search(target: torch.Tensor) -> bool:
    """Search 2^16 seeds of torch's generator, which reads 32 bits of a seed, for noise that correlates with the target."""
    unit = target - target.mean()
    unit /= unit.norm()
    generator = torch.Generator()
    return any(
        float(torch.randn(len(target), generator=generator.manual_seed(seed)) @ unit) / len(target) ** 0.5 > 0.7
        for seed in range(2**16)
    )


def test_a_search_finds_a_seeded_generator_and_not_this_one() -> None:
    planted = torch.Generator().manual_seed(0xABCD << 48 | 54_321)
    assert found_by_search(torch.randn(128, generator=planted))
    assert not found_by_search(noise(bytes(30) + (54_321).to_bytes(2, "big"), count=128))


def test_layers_draw_by_the_whole_seed() -> None:
    def drawn(last: int) -> torch.Tensor:
        with torch.random.fork_rng():
            seed_layers(bytes(4 * 624 - 1) + bytes([last]))
            return torch.rand(5000)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2)), "torch.manual_seed would read none of the last bytes"


def test_content_is_records_and_labels_in_their_order() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 3, 2, 2)
    inputs, labels, rows = (
        Inputs(pixels, {"kind": "image"}, (3, 2, 2)),
        torch.tensor([0, 1, 2, 0]),
        torch.tensor([0, 2]),
    )
    changed = pixels.copy()
    changed[2, 0, 0, 0] += 1
    digests = [
        content_digest(inputs, labels, rows),
        content_digest(Inputs(changed, {"kind": "image"}, (3, 2, 2)), labels, rows),
        content_digest(Inputs(pixels, {"kind": "image", "std": 0.4}, (3, 2, 2)), labels, rows),
        content_digest(inputs, torch.tensor([0, 1, 1, 0]), rows),
        content_digest(inputs, labels, rows.flip(0)),
    ]
    assert len(set(digests)) == len(digests)
    changed[2] = pixels[2]
    changed[1] = 0  # not a member
    assert content_digest(Inputs(changed, {"kind": "image"}, (3, 2, 2)), labels, rows) == digests[0]


def test_the_key_depends_on_the_secret_the_terms_and_the_content() -> None:
    keys = {
        training_key((0, "a"), {"delta": 1}, b"x"),
        training_key((1, "a"), {"delta": 1}, b"x"),
        training_key((0, "a"), {"delta": 2}, b"x"),
        training_key((0, "a"), {"delta": 1}, b"y"),
    }
    assert len(keys) == 4 and {len(key) for key in keys} == {32}


def released(records: np.ndarray = RECORDS, training: dict[str, object] | None = None, **terms: object) -> np.ndarray:
    """Return what a training under a secret 128-bit seed added to its initial weights."""
    architecture = describe("tiny", "mlp", {"width": 16, "depth": 1}, (5,), 3)
    section = Mechanism(**({"mechanism": "dp-sgd", "accountant": "rdp", "delta": 1e-5} | terms))  # type: ignore[arg-type]
    spec = Training(**({"epochs": 1, "batch": 40, "optimizer": "sgd", "learning_rate": 0.1} | (training or {})))  # type: ignore[arg-type]
    recipe = Recipe(architecture, None, section, spec, 0.2, 64, (2**127 + 12_345, "train"))
    model = train_shadow(recipe, 0, torch.from_numpy(records), LABELS, MEMBERS).model
    return torch.cat([value.detach().flatten() for value in model.parameters()]).numpy()


OTHER = [
    {"delta": 2e-5},
    {"clipping": "flat"},
    {"clipping": "flat", "clip_norm": 0.999},
    {"training": {"learning_rate": 0.10001}},
    {"training": {"weight_decay": 1e-6}},
    {"training": {"schedule": "constant"}},
    {"training": {"precision": "tf32"}},
]


@pytest.mark.parametrize("terms", OTHER, ids=str)
def test_any_other_term_has_independent_noise(terms: dict[str, object]) -> None:
    """Under noise that names alone key, weights that differ in δ alone correlate at 0.99997: the noise could be subtracted."""
    base = released()
    start = released(training={"learning_rate": 1e-12})
    assert np.array_equal(base, released())
    assert abs(np.corrcoef(base - start, released(**terms) - start)[0, 1]) < 0.35  # type: ignore[arg-type]


OWN = """
from mia_audit.privacy.catalogue import Unit, mechanism
from mia_audit.privacy.mechanisms import DPSGD, Noise


@mechanism(options=(Noise, Unit))
class Own(DPSGD):
    def deviation(self):
        return {factor} * super().deviation()
"""


def test_other_code_of_a_mechanism_has_independent_noise(tmp_path: Path) -> None:
    """The same noise at two scales, from a file that was edited in between, could be subtracted."""
    path = tmp_path / "own.py"
    start = released(training={"learning_rate": 1e-12})
    added = []
    for factor in (1, 1.25):
        path.write_text(OWN.format(factor=factor))
        with forgotten_files([str(path)]):
            added.append(released(mechanism=f"{path}:Own") - start)
    assert abs(np.corrcoef(*added)[0, 1]) < 0.35


def test_one_replaced_record_has_independent_noise() -> None:
    other = RECORDS.copy()
    other[3, 0] = np.nextafter(other[3, 0], np.inf)
    start = released(training={"learning_rate": 1e-12})
    assert abs(np.corrcoef(released() - start, released(other) - start)[0, 1]) < 0.35
    other[3], other[50] = RECORDS[3], 0  # not a member
    assert np.array_equal(released(other), released())
