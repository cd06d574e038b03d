"""The same label means the same class, however a file writes it."""

import logging

import pytest

from cl_graft.data.labels import collect_class_names, has_no_label, read_label_name, read_labels
from cl_graft.errors import InputError


@pytest.mark.parametrize("value", [1, "1", 1.0, "1.0", " 1 ", "1.", "+1", "01"])
def test_a_whole_number_is_one_label_in_any_form(value):
    assert read_label_name(value, "here") == "1"
    assert read_labels(["no", "yes"], {}).read(value, "here") == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.5, "neither a name nor a whole number"),
        ("1.5", "neither a name nor a whole number"),
        ("1e3", "neither a name nor a whole number"),
        (float("inf"), "neither a name nor a whole number"),
        (["a"], "neither a name nor a whole number"),
        ("NaN", "looks like a missing value"),
        ("None", "looks like a missing value"),
        ("a\nb", "control characters"),
        ("a" * 201, "it has 201 characters"),
    ],
)
def test_what_is_no_label_is_told_where_none_are_declared(value, said):
    with pytest.raises(InputError, match=f"here: label .*{said}"):
        read_label_name(value, "here")


@pytest.mark.parametrize("name", ["none", "1_0", "3.11.1", "½", "yes", "infinity war"])
def test_names_that_look_a_little_like_numbers_are_names(name):
    assert read_label_name(name, "here") == name


@pytest.mark.parametrize("name", ["1.5", "nan", "None"])
def test_a_declared_name_is_a_name_whatever_it_looks_like(name):
    assert read_labels(["other", name], {}).read(f" {name} ", "here") == 1


def test_names_that_differ_in_their_case_are_two_classes_and_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        names = collect_class_names(["no", "Yes", "yes"], origin="a.csv", column="label")
    assert names == ("Yes", "no", "yes")
    assert "the labels 'Yes' and 'yes' differ only in their case" in caplog.text


@pytest.mark.parametrize("value", [None, float("nan"), "", "  ", -1, "-1", -1.0, "-1.0"])
def test_hidden_labels_are_known(value):
    assert has_no_label(value)
    assert not has_no_label(0)


@pytest.mark.parametrize("name", ["a\u202eb", "a\x1b[2J", "a" * 201, "a\u2028b"])
def test_a_declared_name_that_cannot_be_shown_is_refused(name):
    with pytest.raises(InputError, match=r"label name .* has \d+ characters, or control"):
        read_labels(["no", name], {})


@pytest.mark.parametrize("value", [2, -1, "maybe", 0.5, "7"])
def test_a_label_outside_the_declared_names_is_refused(value):
    with pytest.raises(InputError, match=r"here: label .* declared"):
        read_labels(["no", "yes"], {}).read(value, "here")


def test_a_column_of_identifiers_is_no_label():
    with pytest.raises(InputError, match="60 different values in 60 rows"):
        collect_class_names([f"id-{n}" for n in range(60)], origin="a.csv", column="label")
