"""YAML's traps, sprung one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.experiment.yamlfile import dump_yaml, parse_yaml, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("-.5", -0.5),
        ("1_000", 1000),
        ("13:00", "13:00"),
        ("09:30", "09:30"),
        ("no", "no"),
        ("on", "on"),
        ("NO", "NO"),
        ("true", True),
        ("2024-01-02", "2024-01-02"),
        ("600000.SH", "600000.SH"),
        ("BRK.B", "BRK.B"),
        ('"000001"', "000001"),
        ("0", 0),
        ("0.10", 0.1),
        ("none", None),
        ("", None),
    ],
)
def test_what_is_written_arrives(text: str, value: object) -> None:
    result = parse_yaml(text, "here")
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize("text", ["0010", "000001", "[00700]", "{a: -01}"])
def test_a19_leading_zeros_are_not_lost(text: str) -> None:
    with pytest.raises(ConfigError, match=r'here, line 1: .* leading zeros as a number; quote it: "'):
        parse_yaml(text, "here")


def test_a_name_stands_once() -> None:
    with pytest.raises(ConfigError, match="here, line 3: 'a' stands here a second time"):
        parse_yaml("a: 1\nb: 2\na: 3", "here")


def test_merge_keys_still_work() -> None:
    text = "base: &base {a: 1, b: 2}\nown:\n  <<: *base\n  c: 3\n"
    assert parse_yaml(text, "here")["own"] == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("text", ["a: [1, 2", "a: b: c", "!!python/object/apply:os.getcwd []"])
def test_what_is_no_yaml_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match="here, line 1: this is not YAML"):
        parse_yaml(text, "here")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    with pytest.raises(ConfigError, match=r"a\.yaml: cannot be read as a configuration \(No such file or directory\)"):
        read_yaml(file)
    file.write_text("")
    assert read_yaml(file) == {}
    file.write_text("- a\n")
    with pytest.raises(ConfigError, match="a configuration is a list of 'name: value' lines, not list"):
        read_yaml(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(file)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
traps = st.sampled_from(
    ["0010", "1e5", "no", "13:00", "none", "~", "", "true", "2024-01-02", "1.", ".5", "null", "<<", "0x1f", "1_0"]
)
trees = st.recursive(
    scalars | traps,
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(traps | st.text(min_size=1, max_size=8), children, max_size=3)
    ),
    max_leaves=8,
)


@given(trees)
def test_dumping_and_reading_give_the_same(value: object) -> None:
    for flow in (False, True):
        assert parse_yaml(dump_yaml(value, flow=flow), "here") == value
