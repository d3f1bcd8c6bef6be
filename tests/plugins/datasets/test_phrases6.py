"""The data set `phrases6`: what its texts say, how often, and what another draw changes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench_plugins.datasets import phrases6
from fedbench_plugins.datasets.phrases6 import REGISTERS, class_meanings, make, write


def test_every_register_has_as_many_texts_of_every_class():
    dataset = make(classes=5, train_per_class=4, test_per_class=2)
    splits = dataset.load()
    assert dataset.texts and dataset.domains == REGISTERS and len(dataset.classes) == 5
    for half, per_class in ((splits.train, 4), (splits.test, 2)):
        assert len(half.text) == len(half) == 6 * 5 * per_class
        assert (np.bincount(half.domain * 5 + half.y) == per_class).all()
    assert not set(splits.train.text) & set(splits.test.text)


def test_a_draw_is_other_texts_of_the_same_classes_and_the_same_every_time():
    first, again, other = (make(classes=3, train_per_class=2, draw=draw) for draw in (0, 0, 1))
    assert first.load().train.text == again.load().train.text != other.load().train.text
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.classes == other.classes


def test_texts_of_this_writer_do_not_change():
    """A change of any text raises WRITER."""
    texts = make(classes=4, train_per_class=3).load().train.text
    assert (phrases6.WRITER, hash_of_json(texts)[:16]) == (1, "bbe0e51a39c60413")


def test_classes_come_in_pairs_that_differ_in_who_does_it_to_whom_and_none_is_upstream():
    upstream, downstream = (class_meanings(part) for part in ("upstream", "downstream"))
    assert len(upstream) == phrases6.UPSTREAM_CLASSES
    assert not set(map(tuple, upstream)) & set(map(tuple, downstream))
    for classes in (upstream, downstream):
        assert (classes[::2] == classes[1::2][:, [2, 1, 0, 3]]).all()
        bags = [{f"being {a}", f"deed {v}", f"being {b}", f"place {p}"} for a, v, b, p in classes[:60:2]]
        assert max(len(one & other) for i, one in enumerate(bags) for other in bags[:i]) == 2


@pytest.mark.parametrize("register", REGISTERS)
def test_a_text_holds_all_four_concepts_in_the_words_of_the_tables(register):
    meanings = class_meanings("downstream")[:50]
    for (a, v, b, p), text in zip(meanings, write(register, meanings, np.random.default_rng(0)), strict=True):
        found = set(re.findall(r"\w+", text))
        found |= {"".join(pair) for word in found for pair in swaps(word)} if register == "chat" else set()
        tables = ((phrases6._BEINGS, a), (phrases6._ACTIONS, v), (phrases6._BEINGS, b), (phrases6._PLACES, p))
        for table, concept in tables:
            assert found & {word for cell in table[concept] for word in cell}, (text, table[concept])


def swaps(word):
    """The word with two letters back in their places."""
    return [word[:i] + word[i : i + 2][::-1] + word[i + 2 :] for i in range(len(word) - 1)]


def test_tales_alone_have_rare_words():
    rare = set(phrases6.RARE_BEINGS.split()) - {"|", "jack", "tar"}
    meanings = np.repeat(class_meanings("downstream")[:30], 4, axis=0)
    for register in REGISTERS:
        found = set(re.findall(r"\w+", " ".join(write(register, meanings, np.random.default_rng(0)))))
        assert bool(found & rare) == (register == "tale")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 1}, "classes: expected a whole number of at least 2"),
        ({"classes": 395}, "classes must be between 2 and 394, not 395"),
        ({"train_per_class": 0}, "train_per_class"),
    ],
)
def test_impossible_numbers_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        make(**options)
