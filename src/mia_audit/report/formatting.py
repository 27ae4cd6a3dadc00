"""Numbers and names in prose: significant digits, percent and points, bounds rounded conservatively."""

import math
import re
import textwrap
from decimal import ROUND_CEILING, Context, Decimal

from mia_audit.report.findings import ALONE, Estimate
from mia_audit.report.spec import AuditedSetting


def at_most(epsilon: float, digits: int = 3) -> str:
    """Format an upper bound with `digits` significant digits, rounded up so that it stays a bound."""
    if not 0 < epsilon < math.inf:
        return significant(epsilon)
    return significant(rounded_up(epsilon, digits), digits)


def rounded_up(value: float, digits: int) -> float:
    """Round a number up to `digits` significant digits."""
    return float(Context(digits, ROUND_CEILING).create_decimal(repr(value)))


def at_least(epsilon: float) -> str:
    """Format a lower bound with two decimals, rounded down."""
    hundredths = math.floor(epsilon * 100)
    return f"≥ {hundredths / 100:.2f}" if hundredths else "0"


def significant(value: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits, without an exponent between 1e-6 and 1e6; inf is ∞ and NaN –."""
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
    """Format a number with `decimals` decimals; NaN is –."""
    return "–" if math.isnan(value) else f"{value + 0.0:.{decimals}f}".replace("-", "−")


def percent(value: float) -> str:
    """Format a fraction in percent, with three significant digits and at most three decimals."""
    return "–" if math.isnan(value) else f"{fixed(value * 100, _decimals(value))}\u00a0%"


def percent_interval(value: Estimate) -> str:
    """Format an interval in percent, with the decimals that `percent` gives its mean; empty for a single target."""
    return "" if math.isnan(value.low) else f"{interval(value, 100, _decimals(value.mean))}\u00a0%"


def _decimals(fraction: float) -> int:
    return 1 if abs(fraction) >= 0.1 else 2 if abs(fraction) >= 0.01 else 3


def points(value: float) -> str:
    """Format a difference of fractions in points (hundredths) with one decimal, without its sign."""
    return "–" if math.isnan(value) else fixed(abs(value) * 100, 1)


def interval(value: Estimate, scale: float = 1.0, decimals: int = 3) -> str:
    """Format an interval as low to high."""
    if math.isnan(value.low):
        return ALONE
    return f"{fixed(value.low * scale, decimals)} to {fixed(value.high * scale, decimals)}"


def significant_interval(value: Estimate, scale: float = 1.0, digits: int = 3) -> str:
    """Format an interval as low to high with `digits` significant digits; empty where there is none, or no spread at all."""
    if math.isnan(value.low) or value.high - value.low <= 1e-9 * abs(value.mean):
        return ""
    return f"{significant(value.low * scale, digits)} to {significant(value.high * scale, digits)}"


def with_interval(value: Estimate, shown: str = "") -> str:
    """Format a mean (as `shown` if given), with its interval, if any, in parentheses."""
    within = significant_interval(value)
    return (shown or significant(value.mean)) + (f" ({within})" if within else "")


def plus_minus(value: Estimate) -> str:
    """Format an estimate as mean ± standard deviation, which may be unknown."""
    return fixed(value.mean) if math.isnan(value.sd) else f"{fixed(value.mean)} ± {fixed(value.sd)}"


def with_last_digits(mean: float, sd: float | None) -> str:
    """Format 0.678 ± 0.009 as 0.678 (9): the standard deviation, which may be unknown, in units of the last decimal."""
    return fixed(mean) if sd is None or math.isnan(sd) else f"{fixed(mean)} ({sd * 1000:.0f})"


def rate(fpr: float) -> str:
    """Format a false-positive rate in percent, as it was configured."""
    return f"{fpr * 100:g}\u00a0%"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun and separated thousands."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}".replace(",", "\u202f")


def power(value: float) -> str:
    """Format a small probability with a power of ten and all of its digits: a δ is printed as stated."""
    mantissa, exponent = f"{Decimal(str(value)):e}".split("e")
    superscript = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    digits = mantissa.removesuffix(".0")
    return f"10{superscript}" if digits == "1" else f"{digits} · 10{superscript}"


def protection(setting: AuditedSetting) -> str:
    """Return the name of a setting within its group: its label, or its mechanism and ε."""
    return _names(setting)[0]


def protected(setting: AuditedSetting) -> str:
    """Return a setting's protection as part of a sentence."""
    return _names(setting)[1]


def _names(setting: AuditedSetting) -> tuple[str, str]:
    """Return the name of a setting within its group, and the same as part of a sentence."""
    mechanism, epsilon = setting.mechanism_name, f"ε = {setting.epsilon}"
    if setting.label:
        return setting.label, f"with {setting.label}"
    if setting.explained and setting.private:
        return f"{epsilon} each", f"with explanations at {epsilon} each"
    if setting.explained:
        return "no noise", "with explanations without noise"
    if setting.claimed and setting.private:
        return f"{mechanism}, claimed {epsilon}", f"with {mechanism} at a claimed {epsilon}"
    if setting.private:
        return f"{mechanism}, {epsilon}", f"with {mechanism} at {epsilon}"
    if setting.no_guarantee:
        stated = f"its {epsilon} is nominal" if setting.nominal.startswith("nominal") else setting.nominal
        return f"{mechanism}, ε none ({setting.nominal})", f"with {mechanism}, which guarantees nothing ({stated})"
    if setting.finished:
        return "the finished model", "in the finished model"
    if not setting.trained and not setting.given_name:
        return "given signals", "in these signals"
    if not setting.trained and setting.mechanism != "none":
        return setting.given_name, f"with {setting.given_name}"
    if setting.mechanism != "none":  # one of several that protect nothing
        return f"{mechanism}, no protection", f"with {mechanism}, which protects nothing"
    return "no protection", "without protection"


def broken(name: str, letters: int) -> list[str]:
    """Break a name into lines of at most `letters` letters, at hyphens only in long words, and not within ε = 8."""
    lines = textwrap.wrap(unbroken(name), letters, break_long_words=False, break_on_hyphens=False)
    return [part for line in lines for part in textwrap.wrap(line, max(letters, 1), break_long_words=False)]


def unbroken(text: str) -> str:
    """Return text without a possible line break within ε = 8."""
    return EQUATION.sub("\\1\u00a0=\u00a0", text)


EQUATION = re.compile("([εδ]) = ")


def joined(words: list[str], last: str = "and") -> str:
    """Join words with commas and a conjunction."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def capital(text: str) -> str:
    """Capitalise the start of a sentence or cell, except for a mechanism's name."""
    return upper_first(text) if text.startswith(("no ", "given", "with", "in ", "the ")) else text


def titled(setting: AuditedSetting) -> str:
    """Return the name of a setting within its group, for the start of a line or a cell."""
    return capital(protection(setting))


def upper_first(text: str) -> str:
    """Capitalise the first letter of a text, whatever it is."""
    return text[:1].upper() + text[1:]
