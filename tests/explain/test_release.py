"""What each release ships of a map, against loops over its definition; names, noise and what attacks make of constants."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from mia_audit.attacks.catalogue import attacks, plan
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.explain.catalogue import Explainers, explainer_label, private_epsilon
from mia_audit.explain.release import RELEASES, release_maps, release_of
from mia_audit.learners.protocol import Attribution, ExplanationRequest, released
from mia_audit.learners.torch_module import TorchModel
from mia_audit.signals.compute import SignalsTask, model_signals, summarise
from mia_audit.signals.families import columns, families
from mia_audit.signals.name import Reading, read_signal
from mia_audit.storage import write_table
from mia_audit.storage.tables import column_of, encoding_of
from mia_audit.training.task import Records

MAPS = np.random.default_rng(0).standard_normal((6, 2, 4, 5)).astype(np.float32)


def ship(words: str, maps: np.ndarray = MAPS) -> np.ndarray:
    return release_maps(maps, words, (3,), range(len(maps)))


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e20])
def test_every_release_is_what_its_name_says(scale: float) -> None:
    maps = (scale * MAPS).astype(np.float32)
    maps[0, 0, 0, 0] = 0
    assert ship("full", maps) is maps
    for words, share in (("top-k", 0.1), ("top-k:0.25", 0.25)):
        for one, whole in zip(ship(words, maps), maps, strict=True):
            kept = np.sort(np.abs(whole).ravel())[-round(share * 40) :]
            np.testing.assert_array_equal(one, np.where(np.isin(np.abs(whole), kept), whole, 0))
    for words, digits in (("rounded", 1), ("rounded:2", 2)):
        expected = [float(f"{value:.{digits - 1}e}") for value in maps.ravel().astype(np.float64)]
        np.testing.assert_allclose(ship(words, maps).ravel(), expected, rtol=1e-6)
    for words, share in (("clipped", 0.9), ("clipped:0.5", 0.5)):
        for one, whole in zip(ship(words, maps), maps, strict=True):
            limit = np.quantile(np.abs(whole).astype(np.float64), share)
            np.testing.assert_allclose(one, np.where(np.abs(whole) > limit, np.sign(whole) * limit, whole), rtol=1e-6)
    np.testing.assert_array_equal(ship("sign", maps), np.where(maps > 0, 1, np.where(maps < 0, -1, 0)))
    for words in RELEASES:
        assert ship(words, maps).dtype == np.float32 and ship(words, maps).shape == maps.shape
        assert not ship(words, np.zeros_like(maps)).any()


def test_noise_has_the_size_that_is_asked_and_a_key_of_record_model_explainer_and_quantity() -> None:
    maps = np.random.default_rng(1).standard_normal((4, 20_000))
    noise = ship("noisy:2", maps) - maps
    np.testing.assert_allclose(noise.std(axis=1), 2 * np.sqrt(np.square(maps).mean(axis=1)), rtol=0.03)
    assert np.abs(np.corrcoef(noise) - np.eye(4)).max() < 0.03, "records have noise of their own"
    options = {"release": ["full", "noisy"]}
    given = {Attribution(name, quantity): maps for name in ("ixg", "ig") for quantity in ("logit", "probability")}
    drawn = [
        values[2] - maps[2]
        for model in (None, 0, 1)
        for key, values in released(given, ExplanationRequest(["ixg"], options, 0, model=model), range(4)).items()
        if key.explainer.endswith("~noisy")
    ]
    assert len(drawn) == 12 and np.abs(np.corrcoef(drawn) - np.eye(12)).max() < 0.03
    alone = released({Attribution("ixg", "logit"): maps[2:3]}, ExplanationRequest(["ixg"], options, 0), [2])
    np.testing.assert_array_equal(alone[Attribution("ixg~noisy", "logit")][0] - maps[2], drawn[0])


@pytest.mark.parametrize(
    ("release", "message"),
    [
        (("ful",), "unknown release 'ful': did you mean 'full'"),
        (("top-k:1.5",), "expected a number above 0 and at most 1, as in top-k:0.1"),
        (("top-k:0",), "above 0"),
        (("rounded:1.5",), "expected a whole number above 0, as in rounded:1"),
        (("noisy:-1",), "unknown release 'noisy:-1'"),
        (("sign:2",), "sign has no parameter"),
        (("full:1",), "full has no parameter"),
        (("full", "noisy", "noisy:0.5"), "name each release once"),
        ((), "at least 1 item"),
    ],
)
def test_other_releases_are_refused_when_the_config_is_read(release: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Explainers(release=release)


def test_names_say_explainer_and_release() -> None:
    assert release_of("code/a~b.py:f~noisy:0.5") == ("code/a~b.py:f", "noisy:0.5")
    assert release_of("code/a~sign.py:f") == ("code/a~sign.py:f", "full")
    assert explainer_label("ixg~top-k:0.2") == "input × gradient, top-k 0.2"
    assert private_epsilon("private_local:8~sign") == 8
    signal = read_signal("ixg~noisy:0.5_probability_true_l1")
    assert (signal.explainer, signal.quantity, signal.summary) == ("ixg~noisy:0.5", "probability", "l1")
    assert signal.label.split(", ") == ["L1 norm of input × gradient", "noisy 0.5", "probability", "true class"]


def test_full_maps_alone_are_the_default_and_change_no_option() -> None:
    for methods in (("ixg",), ("ig",)):
        found = families(Explainers(methods=methods), "mlp")
        assert found == families(Explainers(methods=methods, release=("full",)), "mlp")
        assert all("release" not in options for options in found.values())


@pytest.fixture
def model() -> TorchModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), batch=4)


def test_signals_are_those_of_the_released_maps_from_no_more_passes(model: TorchModel) -> None:
    rows = np.random.default_rng(2).standard_normal((9, 6)).astype(np.float32)
    records = Records(rows, np.zeros(9, np.int32), {}, np.arange(9))
    passes = []
    model.module.register_forward_hook(lambda module, arguments, output: passes.append(len(arguments[0])))
    plain = families(Explainers(methods=("ig",)), "mlp")["ig"]
    without = model_signals(model, records, SignalsTask("ig", plain, 5, model=1))
    before = sum(passes)
    options = families(Explainers(methods=("ig",), release=("full", *RELEASES)[1:]), "mlp")["ig"]
    signals = model_signals(model, records, SignalsTask("ig", options, 5, model=1))
    assert sum(passes) == 2 * before and list(signals) == columns("ig", options)
    for name, values in without.items():
        np.testing.assert_array_equal(signals[name], values)
    request = ExplanationRequest(["ig"], options, 5, model=1)
    for (explainer, _), maps in released(model.attributions(records, request), request, range(9)).items():
        for summary, values in summarise(maps).items():
            np.testing.assert_allclose(signals[f"{explainer}_{summary}"], values, rtol=1e-4, err_msg=explainer)
    alone = model_signals(model, records[3:5], SignalsTask("ig", options, 5, model=1))
    np.testing.assert_allclose(alone["ig~noisy_l1"], signals["ig~noisy_l1"][3:5], rtol=1e-5)


def test_constant_maps_are_read_under_their_names_and_tell_attacks_nothing(tmp_path) -> None:
    """The sign of a saliency is 1 everywhere, and the norm of a sign is the number of coordinates."""
    options = families(Explainers(methods=("ixg",), release=("sign",)), "mlp")["gradient"]
    random, models, count = np.random.default_rng(3), 8, 60
    member = random.permuted(np.arange(count)[:, None] % 2 * np.ones(models) > 0, axis=0)

    def table(model: int) -> pa.Table:
        signs = {"ixg": np.sign(random.standard_normal((count, 6))), "saliency": np.ones((count, 6))}
        values = {
            name: signs[name.partition("~")[0]].astype(np.float16) / 6
            if name.endswith("vector")
            else random.random(count).astype(np.float32)
            if name in ("label", "predicted", "loss", "confidence")
            else np.full(count, 6, np.float32)
            for name in columns("gradient", options)
        }
        keys = {"shadow": np.full(count, model, np.int32), "record": np.arange(count, dtype=np.int32)}
        named = keys | {"member": member[:, model]} | values
        return pa.table({name: column_of(column) for name, column in named.items()})

    path = tmp_path / "signals.parquet"
    write_table(path, map(table, range(models)), "signals", count * models, **encoding_of(table(0).schema))
    file = SignalsFile(path)
    assert [signal.name for signal in file.signals] == columns("gradient", options)[2:]
    explained = [signal for signal in file.signals if signal.channel == "explanations"]
    runs = plan(("threshold", "l1-lrt", "vector-lrt"), explained, ("blend", "hierarchical", "pooled"))
    assert {run.signals[0].explainer for run in runs} == {"ixg~sign", "saliency~sign"}
    for run in runs:
        readings = [Reading(signal, file.read(signal)) for signal in run.signals]
        scores = attacks[run.attack].score(readings, file.member, run.likelihood)
        scored = scores[~np.isnan(scores)]
        assert len(scored) > 0.9 * scores.size and np.isfinite(scored).all(), run
        if "saliency" in run.signal or run.attack != "vector-lrt":
            assert np.ptp(scored) < 1e-6 * max(1, np.abs(scored).max()), run
