"""The English grammar: every sentence has one tagging, and a form alone does not tell its tag."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest

from experiments.data.english import GRAMMAR, HELD_OUT, LEXICON, START, ambiguous_forms, sentences, splits


def taggings(tokens):
    """All tag sequences the grammar allows for these tokens: a top-down parser that remembers, sharing no code with
    the generator."""
    words = ["a" if token in ("an", "An") else token for token in tokens]
    classes = {name: {entry.split("*")[0] for entry in text.split()} for name, (_, text) in LEXICON.items()}

    def is_in(name, i):
        return words[i] in classes[name] or (i == 0 and words[0].lower() in classes[name])

    @cache
    def parse(symbol, i):
        if symbol in LEXICON:
            return {(i + 1, (LEXICON[symbol][0],))} if i < len(words) and is_in(symbol, i) else set()
        alternatives = (tuple(text.split()[1:]) for text in GRAMMAR[symbol].split("|"))
        return set().union(*(parse_all(alternative, i) for alternative in alternatives))

    @cache
    def parse_all(symbols, i):
        if not symbols:
            return {(i, ())}
        return {(k, a + b) for j, a in parse(symbols[0], i) for k, b in parse_all(symbols[1:], j)}

    return {tags for end, tags in parse(START, 0) if end == len(words)}


@pytest.fixture(scope="module")
def many():
    return sentences(20_000, np.random.default_rng(5))


@pytest.fixture(scope="module")
def data():
    return splits(0)


def test_the_grammar_names_nothing_that_is_not_there():
    used = {symbol for text in GRAMMAR.values() for part in text.split("|") for symbol in part.split()[1:]}
    assert used == (set(GRAMMAR) | set(LEXICON)) - {START}
    assert not set(GRAMMAR) & set(LEXICON)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("I saw a saw", "PRON VERB DET NOUN"),
        ("I can fish .", "PRON AUX VERB PUNCT"),
        ("The can of fish can fall .", "DET NOUN ADP NOUN AUX VERB PUNCT"),
        ("The light can of fish fell .", "DET ADJ NOUN ADP NOUN VERB PUNCT"),
        ("The light can fall .", "DET NOUN AUX VERB PUNCT"),
        (
            "They know that that nurse can open the often open can .",
            "PRON VERB SCONJ DET NOUN AUX VERB DET ADV ADJ NOUN PUNCT",
        ),
        ("The dogs that fish like the rest .", "DET NOUN PRON VERB VERB DET NOUN PUNCT"),
        ("The dogs fish like the cook .", "DET NOUN VERB ADP DET NOUN PUNCT"),
    ],
)
def test_known_sentences_have_one_tagging(text, tags):
    assert taggings(text.split()) == {tuple(tags.split())}


def test_the_parser_does_find_a_second_tagging(monkeypatch):
    # Were bare nouns objects of `can` as well, the textbook's "I can fish" would have two readings.
    monkeypatch.setitem(GRAMMAR, "Predicate2", GRAMMAR["Predicate2"] + " | 1 can_tin fish_noun")
    monkeypatch.setitem(LEXICON, "can_tin", ("VERB", "can"))
    assert taggings(("I", "can", "fish")) == {("PRON", "AUX", "VERB"), ("PRON", "VERB", "NOUN")}


def test_every_generated_sentence_has_one_tagging(many):
    for sentence in many[:700]:
        assert taggings(sentence.tokens) == {sentence.tags}, " ".join(sentence.tokens)


def count_tags(data):
    counts = defaultdict(Counter)
    for sentence in data:
        for token, tag in zip(sentence.tokens, sentence.tags, strict=True):
            counts[token][tag] += 1
    return counts


def test_ambiguous_forms_are_many_frequent_and_balanced(many, data):
    train, _, test = data
    ambiguous = ambiguous_forms(train)
    assert {"saw", "can", "fish", "watch", "light", "run", "play", "back", "book", "duck", "fly", "that"} <= set(
        ambiguous
    )
    assert len(ambiguous) >= 60
    assert ambiguous["light"] == {"NOUN", "VERB", "ADJ"}
    counts = count_tags(many)
    for form in ambiguous:
        assert max(counts[form].values()) / counts[form].total() < 0.72, (form, counts[form])
    # The best that a model without context can do is each form's most frequent tag.
    learnt = {form: tags.most_common(1)[0][0] for form, tags in count_tags(train).items()}
    tried = [
        (tag, learnt[token]) for s in test for token, tag in zip(s.tokens, s.tags, strict=True) if token in ambiguous
    ]
    assert len(tried) > 1000
    assert sum(tag == guess for tag, guess in tried) / len(tried) < 0.65


def test_the_word_before_is_not_enough(data):
    train, _, test = data
    ambiguous = ambiguous_forms(train)

    def pairs(sentence):
        return zip(("", *sentence.tokens), sentence.tokens, sentence.tags, strict=False)

    counts = defaultdict(Counter)
    for sentence in train:
        for before, token, tag in pairs(sentence):
            counts[before, token][tag] += 1
            counts[token][tag] += 1
    right = [
        (counts.get((before, token)) or counts[token]).most_common(1)[0][0] == tag
        for sentence in test
        for before, token, tag in pairs(sentence)
        if token in ambiguous
    ]
    assert sum(right) / len(right) < 0.93


def test_splits_share_no_sentence_and_repeat_with_their_seed(data):
    texts = [[sentence.tokens for sentence in part] for part in data]
    assert [len(part) for part in texts] == [3000, 300, 500]
    assert len({tokens for part in texts for tokens in part}) == 3800
    assert splits(0) == data
    assert splits(1, 50, 5, 5)[0] != data[0][:50]
    assert not any(tokens[:4] == HELD_OUT for part in texts for tokens in part)


def test_train_shows_every_form_with_every_tag_of_the_others(data):
    train, dev, test = ({(w, t) for s in part for w, t in zip(s.tokens, s.tags, strict=True)} for part in data)
    assert {(w.lower(), t) for w, t in dev | test} <= {(w.lower(), t) for w, t in train}


def test_spelling(many):
    assert all(sentence.tokens[0][0].isupper() for sentence in many)
    pairs = {pair for s in many for pair in zip([t.lower() for t in s.tokens], s.tokens[1:], strict=False)}
    assert {after[0] in "aeiou" for before, after in pairs if before == "an"} == {True}
    assert {after[0] in "aeiou" for before, after in pairs if before == "a"} == {False}
