"""Spec strings: formatted specs can be parsed, and unreadable ones are refused with a reason."""

from __future__ import annotations

import builtins
import math
import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference_lab.formatting import nearest
from inference_lab.specs.grammar import (
    Spec,
    SpecError,
    build,
    format_spec,
    format_value,
    parse_spec,
)
from inference_lab.specs.settings import setting


@dataclass(frozen=True)
class Everything:
    """A field of every type that settings have."""

    count: int = 3
    rate: float = 0.5
    flag: bool = False
    text: str = "plain"
    limit: int | None = None
    start: float | None = 1.0
    label: str | None = None
    mode: Literal["fast", "slow-but-sure"] = "fast"
    weight: float | Literal["auto"] = "auto"
    damping: float | Literal["auto"] | None = None


TEXT = st.text(max_size=12) | st.sampled_from(["none", "None", "a b", 'q"uo\\te', "a=b", "x)", "1"])
NUMBER = st.floats(allow_nan=False) | st.integers(-5, 5).map(float)


@given(
    st.builds(
        Everything,
        count=st.integers(),
        rate=NUMBER,
        flag=st.booleans(),
        text=TEXT,
        limit=st.none() | st.integers(),
        start=st.none() | NUMBER,
        label=st.none() | TEXT,
        mode=st.sampled_from(["fast", "slow-but-sure"]),
        weight=NUMBER | st.just("auto"),
        damping=st.none() | NUMBER | st.just("auto"),
    )
)
@example(Everything(rate=1e300, start=-0.0, text="", label="None"))
@example(Everything(rate=math.inf, start=-math.inf, text="\n\t\\", label="tail\\"))
@example(Everything(rate=0.1 + 0.2, start=123456789012345678.0, limit=0))
def test_settings_survive_the_round_trip(settings):
    text = format_spec("everything", settings)
    spec = parse_spec(text)
    assert spec.name == "everything"
    assert build(Everything, spec.name, spec.settings) == settings
    defaults = Everything()
    changed = {k for k, v in vars(settings).items() if v != getattr(defaults, k)}
    assert set(spec.settings) == changed, "only what is not default is written"


def test_a_spec_is_short():
    assert format_spec("x", Everything()) == "x"
    written = format_spec("x", Everything(count=7, rate=2.0, flag=True, start=None, mode="fast"))
    assert written == "x(count=7, rate=2, flag=true, start=none)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (False, "false"),
        (0.5, "0.5"),
        (3.0, "3"),
        (1e20, "1e+20"),
        (math.inf, "inf"),
        (np.float64(0.25), "0.25"),
        (np.float64(3.0), "3"),
        (np.int64(7), "7"),
        ("residual", "residual"),
        ("none", '"none"'),
        ("two words", '"two words"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("", '""'),
        ("a/b_c.py:D+1-2", "a/b_c.py:D+1-2"),
    ],
)
def test_values_are_written_plainly(value, text):
    assert format_value(value) == text


@dataclass(frozen=True)
class Marked:
    always: int = setting(1, always=True)
    hidden: int = field(default=2, init=False)
    needed: str = field(kw_only=True)


def test_format_spec_applies_the_field_markers():
    assert format_spec("m", Marked(needed="x")) == "m(always=1, needed=x)"


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("icm", "icm", {}),
        ("  icm  ", "icm", {}),
        ("icm()", "icm", {}),
        ("icm( )", "icm", {}),
        ("a(b=1)", "a", {"b": "1"}),
        ("a (b = 1 ,c=x-y ) ", "a", {"b": "1", "c": "x-y"}),
        ("a(b=1,)", "a", {"b": "1"}),
        ("a(b=none, c=NONE)", "a", {"b": None, "c": None}),
        ("a(b='none', c=\"none\")", "a", {"b": "none", "c": "none"}),
        ("a(b='x, y)', c='it\\'s', d=\"\\\\\")", "a", {"b": "x, y)", "c": "it's", "d": "\\"}),
        ("a(b='')", "a", {"b": ""}),
        ("dir/my.file.py:Class(b=1e-3)", "dir/my.file.py:Class", {"b": "1e-3"}),
        ("a(b=../data/x_1.uai.gz)", "a", {"b": "../data/x_1.uai.gz"}),
        ("a(\nb=1,\n\tc=2\n)", "a", {"b": "1", "c": "2"}),
    ],
)
def test_specs_that_can_be_read(text, name, settings):
    assert parse_spec(text) == Spec(name, settings)


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "a name"),
        ("   ", 3, "a name"),
        ("(a=1)", 0, "a name"),
        ("'icm'", 0, "a name"),
        ("icm x", 4, "'(' or the end"),
        ("icm)", 3, "'(' or the end"),
        ("a(", 2, "')'"),
        ("a(b", 3, "'=' after 'b'"),
        ("a(b)", 3, "'=' after 'b'"),
        ("a(1=2)", 2, "a setting's name"),
        ("a(,b=1)", 2, "a setting's name"),
        ("a(b=1,,c=2)", 6, "a setting's name"),
        ("a(b=)", 4, "a value for 'b'"),
        ("a(b=", 4, "a value for 'b'"),
        ("a(b==1)", 4, "a value for 'b'"),
        ("a(b=1", 5, "',' or ')'"),
        ("a(b=1 2)", 6, "',' or ')'"),
        ("a(b=f(1))", 5, "',' or ')'"),
        ("a(b='x)", 4, "a closing quote"),
        ("a(b='x\\')", 4, "a closing quote"),
        ("a(b=1) c", 7, "the end"),
        ("a(b=1))", 6, "the end"),
    ],
)
def test_unreadable_spec_is_refused_with_its_position(text, position, expected):
    message = f"cannot read spec {text!r} at position {position}: expected {expected}"
    if text.strip():
        message += f"\n  {text}\n  {' ' * position}^"
    with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
        parse_spec(text)


def test_a_long_spec_is_cut_in_the_message():
    with pytest.raises(SpecError) as caught:
        parse_spec("a(b=" + "x" * 500 + " y)")
    assert "at position 505: expected ',' or ')'" in str(caught.value)
    assert len(str(caught.value)) < 300
    *_, shown, caret = str(caught.value).splitlines()
    assert shown[len(caret) - 1] == "y"


def test_a_setting_given_twice_is_refused():
    with pytest.raises(SpecError, match="gives 'b' twice"):
        parse_spec("a(b=1, c=2, b=1)")


@given(st.text(st.sampled_from("ab1 (),=.'\"\\\n-é"), max_size=30) | st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    """It raises no other exception, and a parsed spec round-trips."""
    try:
        spec = parse_spec(text)
    except SpecError as problem:
        assert "spec" in str(problem)
        return
    body = ", ".join(f"{k}={format_value(v)}" for k, v in spec.settings.items())
    assert parse_spec(f"{spec.name}({body})") == spec


def test_specs_are_not_evaluated(monkeypatch):
    used = []
    with monkeypatch.context() as patch:
        for name in ("eval", "exec", "compile"):
            patch.setattr(builtins, name, lambda *args, name=name, **kwargs: used.append(name))
        raw = parse_spec("a(b='__import__(\"os\")', c=1+1)").settings
    assert used == []
    assert raw == {"b": '__import__("os")', "c": "1+1"}
    for value in ("1+1", "[1]", "2**3", "math.pi", "{1}", "0x10", "1/2"):
        settings = parse_spec(f"x(rate='{value}')").settings
        with pytest.raises(SpecError, match="is not a number"):
            build(Everything, "x", settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x(count=1.5)", "x(count=...): '1.5' is not an integer"),
        ("x(count=true)", "x(count=...): 'true' is not an integer"),
        ("x(count=none)", "x(count=...): none is not allowed"),
        ("x(rate=fast)", "x(rate=...): 'fast' is not a number"),
        ("x(flag=1)", "x(flag=...): '1' is not true or false"),
        ("x(limit=x)", "x(limit=...): 'x' is not an integer or none"),
        ("x(mode=fsat)", "x(mode=...): 'fsat' is not one of fast, slow-but-sure"),
        ("x(weight=many)", "x(weight=...): 'many' is not a number or one of auto"),
        ("x(text=none)", "x(text=...): none is not allowed"),
        (
            "x(cuont=1)",
            "unknown setting of x 'cuont'; did you mean 'count'?; "
            "valid: count, damping, flag, label, limit, mode, rate, start, text, weight",
        ),
        ("x(zzzzzz=1)", "unknown setting of x 'zzzzzz'; valid: count, damping"),
    ],
)
def test_settings_that_do_not_fit_are_refused(text, message):
    spec = parse_spec(text)
    with pytest.raises(SpecError, match=f"^{re.escape(message)}"):
        build(Everything, spec.name, spec.settings)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((f"rate={text}", 0.5) for text in (".5", "5e-1", "+0.5", "0.50")),
        *((f"flag={text}", True) for text in ("TRUE", "True", "true")),
    ],
)
def test_numbers_and_booleans_follow_python(text, value):
    name = text.partition("=")[0]
    assert getattr(build(Everything, "x", parse_spec(f"x({text})").settings), name) == value


def test_missing_and_superfluous_settings():
    with pytest.raises(SpecError, match=re.escape("m needs the setting 'needed': m(needed=...)")):
        build(Marked, "m", {})
    with pytest.raises(SpecError, match="unknown setting of m 'hidden'"):
        build(Marked, "m", {"hidden": "1", "needed": "x"})

    @dataclass(frozen=True)
    class Nothing:
        pass

    with pytest.raises(SpecError, match="n has no settings, got 'a'"):
        build(Nothing, "n", {"a": "1"})


@pytest.mark.parametrize(
    ("word", "match"),
    [
        *((word, "loopy-bp") for word in ("loopybp", "LOOPY_BP", "lopy-bp")),
        ("meanfield", "mean-field"),
        ("icn", "icm"),
        ("xyzzy", None),
    ],
)
def test_nearest_match(word, match):
    hint = "" if match is None else f"; did you mean {match!r}?"
    assert nearest(word, ["icm", "loopy-bp", "mean-field", "ilp"]) == hint
