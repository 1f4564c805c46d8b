"""YAML's traps, sprung one by one."""

from __future__ import annotations

import time
from itertools import pairwise
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


def test_k07_what_is_merged_gives_way_to_ones_own_and_the_first_counts_most() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, y: 2, z: 2}\nc: {<<: [*a, *b], y: 3}\nd: {y: 4, <<: *b}\n"
    found = parse_yaml(text, "here")
    assert found["c"] == {"x": 1, "y": 3, "z": 2}
    assert found["d"] == {"x": 2, "y": 4, "z": 2}


LETTERS = "abcdefghijklmnop"
LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise(LETTERS)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{{', '.join(f'{key}: *{before}' for key in LETTERS)}}}\n" for before, name in pairwise(LETTERS)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: 1\nb: \x01", "here, line 2: .*#x0001", id="control"),
        pytest.param("a: \0", "here, line 1: .*#x0000", id="nul"),
        pytest.param("a: \ud800", "#xd800", id="half of a pair"),
        pytest.param('a: "\\UFFFFFFFF"', "names no character", id="no character"),
        pytest.param('a: "\\U00110000"', "names no character", id="past the last character"),
        pytest.param("[" * 5000 + "]" * 5000, "more than 20 levels", id="deep lists"),
        pytest.param("{a: " * 5000 + "}" * 5000, "more than 20 levels", id="deep mappings"),
        pytest.param("".join(f"{' ' * depth}a:\n" for depth in range(999)), "line 20: .*20 levels", id="deep blocks"),
        pytest.param("a: " + "9" * 5000, "line 1: .*a whole number of 5000 digits", id="huge"),
        pytest.param("a: *" + "a" * 5000, "undefined alias", id="an alias of 5000 letters"),
        pytest.param("a: !" + "a" * 5000 + " 1", "constructor", id="a tag of 5000 letters"),
        pytest.param("a: " + "0" * 5000, "a whole number of 5000 digits", id="5000 zeros"),
        pytest.param("a: !!int abc", "line 1: .*'abc' is no int", id="no int"),
        pytest.param("a: !!int ''", "'' is no int", id="empty int"),
        pytest.param("a: !!float abc", "'abc' is no float", id="no float"),
        pytest.param("a: !!bool maybe", "'maybe' is no bool", id="no bool"),
        pytest.param("a: !!null x", "'x' is no null", id="no null"),
        pytest.param("a: !!map b", "expected a mapping", id="no mapping"),
        pytest.param("a: !!timestamp x", "constructor", id="date"),
        pytest.param("a: !!binary x", "constructor", id="bytes"),
        pytest.param("a: !!set {b}", "constructor", id="set"),
        pytest.param("a: !!python/object/apply:os.system [x]", "constructor", id="code"),
        pytest.param(LAUGHS, "more than 20,000 values", id="aliases of aliases"),
        pytest.param(MERGES, "more than 20,000 values", id="aliases of mappings"),
        pytest.param("a: &a [*a]", "holds itself", id="itself"),
        pytest.param("a: &a {<<: *a}", "holds itself", id="merges itself"),
        pytest.param("a: {<<: [1]}", "<< needs names with values", id="merges a number"),
        pytest.param("a: 1\n---\nb: 2", "line 2: .*another document", id="two documents"),
        pytest.param("a: " + "x" * 1_000_001, "longer than 1,000,000 characters", id="long"),
        pytest.param("\n".join(f"- {n}" for n in range(30_000)), "more than 20,000 values", id="many"),
    ],
)
def test_k07_what_yaml_can_do_to_a_reader_is_a_sentence_at_once(text: str, words: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError, match=words) as caught:
        parse_yaml(text, "here")
    assert time.process_time() - began < 5
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_k07_a_mark_of_byte_order_and_ends_of_lines_of_windows_are_read() -> None:
    assert parse_yaml("\ufeffa: 1\r\nb: [2,\r\n 3]\r\n", "here") == {"a": 1, "b": [2, 3]}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "cp037"])
def test_k07_a_file_of_another_encoding_is_named(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("seed: 1\n", encoding=encoding)
    with pytest.raises(ConfigError, match=r"a\.yaml"):
        read_yaml(tmp_path / "a.yaml")


def test_k07_what_never_ends_is_not_read_for_ever() -> None:
    with pytest.raises(ConfigError, match="/dev/zero"):
        read_yaml(Path("/dev/zero"))


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
