"""Local linear explanations of a model from its training records, plain and private."""

import captum.attr
import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from torch import nn

from mia_audit.errors import UserError
from mia_audit.explain import explainers
from mia_audit.explain.batch import Members, explained_batch
from mia_audit.explain.private_local.terms import capped, kernels

from .attribution import attribute

OPTIONS = {
    "explain": ["probability"],
    "explained_class": "predicted",
    "local_kernel": "lime",
    "local_steps": 30,
    "local_delta": 1e-5,
}


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def inputs() -> torch.Tensor:
    return torch.randn(200, 4, generator=torch.Generator().manual_seed(1))


def explanations(net, inputs, name, member=None, shadow=0, rows=range(6)):
    member = np.arange(len(inputs)) % 2 == 0 if member is None else member
    labels = torch.zeros(len(rows), dtype=torch.long)
    members = Members(net, inputs, member, shadow)
    batch = explained_batch(net, inputs[list(rows)], labels, list(rows), OPTIONS, 5, False, members)
    return batch, explainers[name].attribute(batch, OPTIONS)["probability"].numpy()


def test_the_plain_one_is_weighted_least_squares_on_the_members(net, inputs):
    batch, found = explanations(net, inputs, "local_linear")
    records = inputs[::2].double().numpy()
    outputs = 2 * net(inputs[::2]).double().softmax(1).numpy() - 1
    for row, phi in enumerate(found):
        away = (records - inputs[row].double().numpy()) / 2  # the scale is √4
        kind = int(batch.classes[row])
        at_query = 2 * float(batch.logits[row].softmax(0)[kind]) - 1
        weight = capped(kernels["lime"], np.linalg.norm(away, axis=1), 1.0, 2.0)
        fitted = (
            LinearRegression(fit_intercept=False).fit(away, outputs[:, kind] - at_query, sample_weight=weight).coef_
        )
        assert np.linalg.norm(fitted) < 1
        np.testing.assert_allclose(phi, fitted, atol=1e-6)


def test_captums_lime_agrees_given_the_same_records_and_weights(net, inputs):
    """captum's LimeBase draws from the members in turn instead of around the record, and fits the same differences."""
    batch, found = explanations(net, inputs, "local_linear", rows=[3])
    query, kind = inputs[3:4].double(), int(batch.classes[0])
    precise = nn.Sequential(*net).double()
    at_query = 2 * precise(query).softmax(1)[0, kind] - 1
    members = iter(inputs[::2].double())

    def model(points):
        return 2 * precise(points).softmax(1)[:, kind] - 1 - at_query

    class Fit:
        def fit(self, loader):
            away, target, weight = next(iter(loader))
            self.coefficients = (
                LinearRegression(fit_intercept=False).fit(away, target.ravel(), sample_weight=weight).coef_
            )

        def representation(self):
            return torch.from_numpy(np.atleast_2d(self.coefficients))

    lime = captum.attr.LimeBase(
        model,
        interpretable_model=Fit(),
        similarity_func=lambda _original, _perturbed, away, **_: torch.as_tensor(
            capped(kernels["lime"], away.norm(dim=1).numpy(), 1.0, 2.0)
        ),
        perturb_func=lambda _original, **_: next(members)[None],
        perturb_interpretable_space=False,
        from_interp_rep_transform=None,
        to_interp_rep_transform=lambda sample, original, **_: (sample - original) / 2,
    )
    np.testing.assert_allclose(lime.attribute(query, n_samples=100).numpy()[0], found[0], atol=1e-5)
    precise.float()


def test_with_a_large_budget_the_private_one_is_near_and_with_a_small_one_it_is_not(net, inputs):
    _, plain = explanations(net, inputs, "local_linear")
    distance = {
        name: np.linalg.norm(explanations(net, inputs, name)[1] - plain, axis=1).mean()
        for name in ("private_local:150", "private_local:5", "private_local:0.1")
    }
    assert distance["private_local:150"] < 0.5 * np.linalg.norm(plain, axis=1).mean()
    assert distance["private_local:150"] < distance["private_local:5"] < distance["private_local:0.1"]


def test_noise_is_keyed_by_model_and_record_and_budget(net, inputs):
    def at(**changes):
        return explanations(net, inputs, **({"name": "private_local:1"} | changes))[1]

    np.testing.assert_array_equal(at(), at())
    np.testing.assert_allclose(at(rows=[4, 1]), at()[[4, 1]], atol=1e-9)
    assert not np.allclose(at(), at(shadow=1))
    assert not np.allclose(at(), at(name="private_local:2"))


def test_who_is_no_member_does_not_matter(net, inputs):
    member = np.arange(200) < 100
    moved = torch.cat([inputs[:100], inputs[100:] + 1])
    one, other = (explanations(net, given, "private_local:1", member)[1] for given in (inputs, moved))
    np.testing.assert_array_equal(one, other)


def test_without_training_records_it_says_so(net, inputs):
    with pytest.raises(UserError, match="need the training records of a model"):
        attribute(net, inputs[:1], torch.zeros(1, dtype=torch.long), [0], "local_linear", OPTIONS, 0)


@pytest.mark.parametrize(
    "name", ["private_local", "private_local:", "private_local:-1", "private_local:inf", "private_local:0"]
)
def test_a_budget_that_is_none_is_no_explainer(name):
    assert name not in explainers
