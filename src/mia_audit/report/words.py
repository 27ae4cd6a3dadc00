"""Numbers as people read them: three significant digits, percent and points in prose, and never more than is known."""

import math
from decimal import ROUND_CEILING, Context

from mia_audit.report.findings import Estimate
from mia_audit.report.results import Setting


def at_most(epsilon: float, digits: int = 3) -> str:
    """Write a promise with so many significant digits, rounded up: what is printed is kept, too."""
    if not 0 < epsilon < math.inf:
        return significant(epsilon)
    return significant(float(Context(digits, ROUND_CEILING).create_decimal(repr(epsilon))), digits)


def at_least(epsilon: float) -> str:
    """Write a lower bound with two decimals, rounded down; nothing shown is 0."""
    hundredths = math.floor(epsilon * 100)
    return f"≥ {hundredths / 100:.2f}" if hundredths else "0"


def significant(value: float, digits: int = 3) -> str:
    """Write a number with so many significant digits, without an exponent between 1e-6 and 1e6; inf is ∞ and NaN –."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    magnitude = math.floor(math.log10(abs(rounded)))
    if not -6 <= magnitude < 6:
        return f"{rounded:.{digits - 1}e}".replace("-", "−")
    return f"{rounded:.{max(0, digits - 1 - magnitude)}f}".replace("-", "−")


def fixed(value: float, decimals: int = 3) -> str:
    """Write a number with so many decimals; NaN is –."""
    return "–" if math.isnan(value) else f"{value + 0.0:.{decimals}f}".replace("-", "−")


def percent(value: float) -> str:
    """Write a fraction in percent, to three significant digits but never more than three decimals."""
    return "–" if math.isnan(value) else f"{fixed(value * 100, _decimals(value))}\u00a0%"


def percent_interval(found: Estimate) -> str:
    """Write an interval in percent, with as many decimals as `percent` gives its mean; nothing for a single target."""
    return "" if math.isnan(found.low) else f"{interval(found, 100, _decimals(found.mean))}\u00a0%"


def _decimals(fraction: float) -> int:
    return 1 if abs(fraction) >= 0.1 else 2 if abs(fraction) >= 0.01 else 3


def points(value: float) -> str:
    """Write a difference of fractions in points (hundredths) with one decimal, without its sign."""
    return "–" if math.isnan(value) else fixed(abs(value) * 100, 1)


def interval(found: Estimate, scale: float = 1.0, decimals: int = 3) -> str:
    """Write an interval as low to high."""
    if math.isnan(found.low):
        return "one target, no interval"
    return f"{fixed(found.low * scale, decimals)} to {fixed(found.high * scale, decimals)}"


def plus_minus(found: Estimate, decimals: int = 3) -> str:
    """Write mean ± standard deviation."""
    spread = "" if math.isnan(found.sd) else f" ± {fixed(found.sd, decimals)}"
    return f"{fixed(found.mean, decimals)}{spread}"


def rate(fpr: float) -> str:
    """Write a false-positive rate in percent, as it was configured."""
    return f"{fpr * 100:g}\u00a0%"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun, thousands set apart."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}".replace(",", "\u202f")


def power(value: float) -> str:
    """Write a small probability, as a power of ten where it is one."""
    mantissa, exponent = f"{value:.1e}".split("e")
    superscript = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    digits = mantissa.removesuffix(".0")
    return f"10{superscript}" if digits == "1" else f"{digits} · 10{superscript}"


def protection(setting: Setting) -> str:
    """Name what tells a setting from the others of its group: its mechanism and ε."""
    if setting.explained:
        return f"ε = {setting.epsilon} each" if setting.private else "no noise"
    if setting.private:
        return f"{setting.mechanism}, ε = {setting.epsilon}"
    if setting.no_guarantee:
        return f"{setting.mechanism}, ε none (nominal {setting.epsilon})"
    if not setting.trained:
        return "given signals"
    return "no protection" if setting.mechanism == "none" else f"{setting.mechanism} (no guarantee)"


def protected(setting: Setting) -> str:
    """Say under which protection, as a part of a sentence."""
    if setting.explained:
        return (
            f"with explanations at ε = {setting.epsilon} each" if setting.private else "with explanations without noise"
        )
    if setting.private:
        return f"with {setting.mechanism} at ε = {setting.epsilon}"
    if setting.no_guarantee:
        return f"with {setting.mechanism}, which guarantees nothing (its ε = {setting.epsilon} is nominal)"
    if not setting.trained:
        return "in these signals"
    return (
        "without protection" if setting.mechanism == "none" else f"with {setting.mechanism}, which guarantees nothing"
    )


def joined(words: list[str], last: str = "and") -> str:
    """Join words as a sentence does."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def capital(text: str) -> str:
    """Begin a sentence or a cell with a capital, but leave the name of a mechanism as it is written."""
    return text[:1].upper() + text[1:] if text.startswith(("no ", "given", "with", "in ")) else text
