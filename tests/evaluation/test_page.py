"""Tables of a page: what is read stands at the left and may wrap, what is compared by its digits at the right."""

from __future__ import annotations

from rlwb.evaluation.page import columns_of_words


def test_a_column_with_a_word_in_it_is_read() -> None:
    rows = [
        ["policy a", "17.34 ± 0.32", "[13.38, 21.20]", "", "10 of 10", "the best of 40"],
        ["policy b", "-0.10", "-", "ceiling", "1", "1: it tells"],
    ]
    assert columns_of_words(rows) == {3, 5}
    assert columns_of_words([]) == set()
