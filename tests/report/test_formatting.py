import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mia_audit.report.findings import estimate
from mia_audit.report.formatting import (
    at_least,
    at_most,
    broken,
    count,
    fixed,
    joined,
    percent,
    points,
    power,
    protected,
    protection,
    significant,
    with_interval,
)
from mia_audit.report.spec import AuditedSetting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.67449, "0.674"),
        (0.99996, "1.00"),
        (1234.6, "1230"),
        (0.000123456, "0.000123"),
        (-0.5, "−0.500"),
        (0.0, "0"),
        (math.inf, "∞"),
        (math.nan, "–"),
        (1.5e-9, "1.50e−09"),
    ],
)
def test_three_significant_digits(value, text):
    assert significant(value) == text


@given(st.floats(1e-5, 1e5))
def test_significant_is_within_half_a_unit_of_the_third_digit(value):
    assert float(significant(value)) == pytest.approx(value, rel=0.00501)


def test_settings_whose_explanations_are_attacked_are_named_by_the_noise_of_each():
    open_, private = (
        AuditedSetting(
            "toy-explained", "forest", "any", epsilon, private=epsilon != "inf", trained=False, explained={"steps": 3}
        )
        for epsilon in ("inf", "2")
    )
    assert (protection(open_), protection(private)) == ("no noise", "ε = 2 each")
    assert protected(open_) == "with explanations without noise"
    assert protected(private) == "with explanations at ε = 2 each"


def test_percent_and_points():
    assert percent(0.7469) == "74.7\u00a0%"
    assert percent(0.0184) == "1.84\u00a0%"
    assert percent(1.0) == "100.0\u00a0%"
    assert points(-0.0432) == "4.3"
    assert fixed(-0.0432) == "−0.043"


def test_small_probabilities_are_powers_of_ten():
    assert power(1e-5) == "10⁻⁵"
    assert power(2.5e-7) == "2.5 · 10⁻⁷"


@pytest.mark.parametrize(("stated", "printed"), [(1.26e-6, "1.26 · 10⁻⁶"), (1 / 3e6, "3.3333333333333335 · 10⁻⁷")])
def test_a_delta_is_printed_as_stated(stated, printed):
    assert power(stated) == printed


def test_counts_and_lists():
    assert count(1, "model") == "1 model"
    assert count(1200, "record") == "1\u202f200 records"
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(7.9941, "8.00"), (1.9964, "2.00"), (2.0, "2.00"), (0.5001, "0.501"), (12.31, "12.4"), (math.inf, "∞")],
)
def test_a_promise_is_never_rounded_down(epsilon, shown):
    assert at_most(epsilon) == shown


@pytest.mark.parametrize(("epsilon", "shown"), [(0.0, "0"), (0.004, "0"), (0.0648, "≥ 0.06"), (1.999, "≥ 1.99")])
def test_a_lower_bound_is_rounded_down(epsilon, shown):
    assert at_least(epsilon) == shown


def test_a_label_stands_for_mechanism_and_epsilon_or_for_the_mechanism_alone():
    setting = AuditedSetting("toy", "net", "dp-sgd", "8", private=True, mechanism_label="DP-SGD")
    assert protection(setting) == "DP-SGD, ε = 8" and protected(setting) == "with DP-SGD at ε = 8"
    named = AuditedSetting("toy", "net", "dp-sgd", "8", private=True, label="our method", dataset_label="Toys")
    assert protection(named) == "our method" and protected(named) == "with our method"
    assert named.place == "Toys, net"


def test_names_are_broken_between_words_and_not_within_an_epsilon():
    lines = broken("feature-aware-dp-training, claimed ε = 8", 14)
    assert lines == ["feature-aware-", "dp-training,", "claimed ε\u00a0=\u00a08"]
    assert broken("dp-sgd, ε = 8", 22) == ["dp-sgd, ε\u00a0=\u00a08"]


def test_a_mean_has_its_interval_where_there_is_one_with_any_spread() -> None:
    assert with_interval(estimate([1.0, 2.0, 3.0], 0.95)) == "2.00 (−0.484 to 4.48)"
    assert with_interval(estimate([2.0], 0.95)) == with_interval(estimate([2.0, 2.0], 0.95)) == "2.00"
    assert with_interval(estimate([1.0, 3.0], 0.95), "about 2") == "about 2 (−10.7 to 14.7)"


def test_several_settings_without_privacy_are_told_apart():
    names = [
        protection(AuditedSetting("toy", "net", mechanism, "inf", private=False)) for mechanism in ("none", "lora")
    ]
    assert names == ["no protection", "lora, no protection"]
