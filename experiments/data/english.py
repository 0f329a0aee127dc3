"""English sentences with their parts of speech, from a small grammar of our own.

Some seventy forms have two tags or three, each about as often as the other, and only the sentence tells which:
`the cook can fish`, `a can of fish`, `the light can of fish fell`, `the light can fall`. The grammar is built so
that a sentence has one tagging only: its tests parse what it generates and look for a second.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from experiments.data.conllu import Tagged

START = "Sentence"

# A weight, then symbols, for every alternative; a symbol that GRAMMAR lacks is a word class of LEXICON. Names end in
# 1 for a singular subject and its verb (the cook runs), 2 for a plural one, I or you (we run), 0 for a bare verb.
GRAMMAR: dict[str, str] = {
    "Sentence": "70 Statement stop | 14 Statement | 16 Question mark",
    "Statement": "66 Clause | 9 Clause comma but Clause | 9 conjunction Clause comma Clause | 9 Report",
    "Report": "3 Subject2 say2 that_conjunction Clause | 3 Subject1 says1 that_conjunction Clause"
    " | 3 Subject said that_conjunction Clause",
    "Clause": "6 Subject1 Predicate1 | 9 Subject2 Predicate2 | 6 Subject Modal | 7 Subject Past | 4 Thing | 2 Being",
    "Being": "2 Subject1 is Being0 | 1 Person2 are Being0 | 1 we are Being0 | 1 I am Being0",
    "Being0": "1 adjective | 2 calm_adjective | 1 adverb calm_adjective",
    "Question": "6 can_verb Subject Verb0 | 2 must Subject Verb0 | 2 do Subject2 Verb0",
    # Who does something, and things, to which something happens.
    "Subject": "1 Subject1 | 1 Subject2",
    "Subject1": "4 pronoun1 | 2 name | 6 Person1",
    "Subject2": "7 pronoun2 | 5 Person2",
    "Person1": "8 Determiner1 Animate1 | 5 Determiner1 Manner Animate1 | 2 Determiner1 Animate1 Relative1",
    "Person2": "7 Determiner2 Animate2 | 5 Determiner2 Manner Animate2 | 3 Determiner2 Animate2 Relative2",
    "Relative1": "1 who Relating1 | 3 that_pronoun Relating1",
    "Relative2": "1 who Relating0 | 3 that_pronoun Relating0",
    "Relating1": "2 runs_verb | 1 runs_verb fast_adverb | 2 watches_verb Object",
    "Relating0": "4 run_verb | 2 run_verb fast_adverb | 2 watch_verb Object",
    "Thing": "4 Object1 fell | 2 Determiner1 rose_noun rose_verb | 2 name rose_verb | 6 Object1 Auxiliary ThingVerb"
    " | 2 Object1 is Being0",
    "ThingVerb": "3 fall | 1 fall back_adverb | 1 be Being0",
    "Animate1": "2 person1 | 1 cook_noun",
    "Animate2": "4 person2 | 1 cooks_noun",
    # Noun phrases.
    "Object": "16 Object1 | 8 Object2 | 2 name | 3 object_pronoun",
    "Object1": "16 Determiner1 Noun1 | 9 Determiner1 Adjective Noun1 | 2 Determiner1 Adjective Adjective Noun1"
    " | 4 Determiner1 can_noun of Mass | 1 Determiner1 Adjective can_noun of Mass | 1 Determiner1 kind_noun of Mass"
    " | 1 the back_noun of Determiner1 Noun1 | 1 possessive back_noun",
    "Object2": "8 Determiner2 Noun2 | 5 Determiner2 Adjective Noun2 | 1 Determiner2 Animate2 Relative2",
    "Noun1": "4 thing1 | 2 person1 | 9 watch_noun | 18 run_noun | 4 saw_noun | 2 light_noun | 2 can_noun | 2 cook_noun",
    "Noun2": "8 thing2 | 2 person2 | 8 watches_noun | 10 runs_noun | 2 cooks_noun",
    "Mass": "3 mass | 5 fish_noun | 2 mass and fish_noun | 3 fish_noun and fish_noun",
    "Determiner1": "10 determiner1 | 2 possessive",
    "Determiner2": "6 determiner2 | 2 possessive | 2 number",
    "Adjective": "5 adjective | 5 clean_adjective | 2 adverb clean_adjective | 3 fast_adjective | 2 left_adjective",
    "Manner": "5 adjective | 3 calm_adjective | 1 adverb calm_adjective | 3 fast_adjective | 2 left_adjective",
    # Verb phrases.
    "Predicate1": "9 Verb1 | 2 adverb Verb1 | 1 wants to_particle Verb0",
    "Predicate2": "9 Verb0 | 3 adverb Verb0 | 2 want to_particle Verb0"
    " | 1 want to_particle adverb Verb0 | 3 like_verb Object",
    "Verb0": "3 see0 Object | 10 watch_verb Object | 10 clean_verb Object | 2 eat0 Mass | 7 run_verb"
    " | 8 run_verb Way | 1 go0 Way | 3 run_verb and run_verb",
    "Verb1": "4 sees1 Object | 13 watches_verb Object | 1 eats1 Mass | 5 runs_verb | 6 runs_verb Way | 1 goes1 Way",
    "Modal": "8 Auxiliary Verb0 | 3 Auxiliary adverb Verb0 | 2 Auxiliary not Verb0",
    "Auxiliary": "4 can_verb | 3 must",
    "Past": "4 saw_verb Object | 4 bought Object | 1 left_verb Object | 2 left_verb | 3 went Way"
    " | 1 adverb saw_verb Object",
    "Way": "6 fast_adverb | 2 back_adverb | 4 outside_adverb | 4 outside_preposition Object | 6 to_preposition Object"
    " | 2 in Object | 5 like_preposition Object | 2 back_adverb to_preposition Object | 1 fast_adverb in Object"
    " | 1 for a second_noun",
}

# The tag of every word class and its words; `word*3` stands there three times.
LEXICON: dict[str, tuple[str, str]] = {
    "stop": ("PUNCT", "."),
    "mark": ("PUNCT", "?"),
    "comma": ("PUNCT", ","),
    "and": ("CCONJ", "and or"),
    "but": ("CCONJ", "but"),
    "conjunction": ("SCONJ", "when because if"),
    "that_conjunction": ("SCONJ", "that"),
    "that_pronoun": ("PRON", "that"),
    "who": ("PRON", "who"),
    "pronoun1": ("PRON", "he she"),
    "pronoun2": ("PRON", "I you we they"),
    "object_pronoun": ("PRON", "me him us them"),
    "possessive": ("PRON", "my our their"),
    "name": ("PROPN", "Anna Tom Maria Ben"),
    "determiner1": ("DET", "the*6 a*6 this*2 that*3 every"),
    "determiner2": ("DET", "the*5 these those some"),
    "a": ("DET", "a"),
    "the": ("DET", "the"),
    "I": ("PRON", "I"),
    "we": ("PRON", "you we they"),
    "number": ("NUM", "two three ten"),
    "of": ("ADP", "of"),
    "for": ("ADP", "for"),
    "in": ("ADP", "in with under"),
    "to_preposition": ("ADP", "to"),
    "to_particle": ("PART", "to"),
    "not": ("PART", "not"),
    "like_preposition": ("ADP", "like"),
    "like_verb": ("VERB", "like"),
    "outside_preposition": ("ADP", "outside inside behind"),
    "outside_adverb": ("ADV", "outside inside behind"),
    "adverb": ("ADV", "often always now still already"),
    "back_adverb": ("ADV", "back"),
    "back_noun": ("NOUN", "back"),
    "fast_adverb": ("ADV", "fast hard early late"),
    "fast_adjective": ("ADJ", "fast hard early late"),
    "adjective": ("ADJ", "old young small red happy"),
    "left_adjective": ("ADJ", "left*4 kind*2 second"),
    "left_verb": ("VERB", "left"),
    "kind_noun": ("NOUN", "kind"),
    "second_noun": ("NOUN", "second"),
    "clean_adjective": ("ADJ", "clean dry open empty calm warm cool light"),
    "calm_adjective": ("ADJ", "clean calm warm cool light"),
    "clean_verb": ("VERB", "clean*2 dry open empty calm*2 warm*2 cool*2 light*2"),
    "can_noun": ("NOUN", "can"),
    "can_verb": ("AUX", "can"),
    "must": ("AUX", "must should"),
    "do": ("AUX", "do"),
    "be": ("AUX", "be"),
    "am": ("AUX", "am"),
    "is": ("AUX", "is was"),
    "are": ("AUX", "are were"),
    "person1": ("NOUN", "dog farmer girl teacher"),
    "person2": ("NOUN", "dogs farmers girls children"),
    "cook_noun": ("NOUN", "cook guard guide nurse"),
    "cooks_noun": ("NOUN", "cooks guards guides nurses"),
    "thing1": ("NOUN", "house river garden box"),
    "thing2": ("NOUN", "houses rivers gardens boxes"),
    "mass": ("NOUN", "rice tea oil"),
    "fish_noun": ("NOUN", "fish*2 duck*2 water paint drink"),
    "rose_noun": ("NOUN", "rose"),
    "rose_verb": ("VERB", "rose"),
    "watch_noun": ("NOUN", "watch book plant park ring train rock question answer"),
    "watches_noun": ("NOUN", "watches books plants parks rings trains"),
    "run_noun": ("NOUN", "run play walk dance drive rest swim fly"),
    "runs_noun": ("NOUN", "runs plays walks dances drives rests"),
    "saw_noun": ("NOUN", "saw"),
    "light_noun": ("NOUN", "light"),
    "watch_verb": (
        "VERB",
        "watch book plant park ring train rock question answer cook guard*2 guide*2 nurse*2 water*2 paint*2 drink*2",
    ),
    "watches_verb": ("VERB", "watches books plants parks rings trains cooks*2 guards*2 guides*2 nurses*2"),
    "run_verb": ("VERB", "run play walk dance drive rest swim fly fish duck"),
    "runs_verb": ("VERB", "runs plays walks dances drives rests"),
    "saw_verb": ("VERB", "saw"),
    "see0": ("VERB", "see know find follow"),
    "sees1": ("VERB", "sees knows finds follows"),
    "say2": ("VERB", "say think know"),
    "says1": ("VERB", "says thinks knows"),
    "said": ("VERB", "said thought knew"),
    "bought": ("VERB", "bought found followed"),
    "eat0": ("VERB", "eat buy cook"),
    "eats1": ("VERB", "eats buys cooks"),
    "want": ("VERB", "want try"),
    "wants": ("VERB", "wants tries"),
    "go0": ("VERB", "go come"),
    "goes1": ("VERB", "goes comes"),
    "went": ("VERB", "went came"),
    "fall": ("VERB", "fall"),
    "fell": ("VERB", "fell"),
}

# The lecture's sentence is never trained on, so that what a model says of it has been understood.
HELD_OUT = ("I", "saw", "a", "saw")

Rules = dict[str, tuple[list[int], list[tuple[str, ...]]]]


def _rules() -> Rules:
    """For every symbol of the grammar its alternatives and their cumulated weights."""
    rules: Rules = {}
    for name, text in GRAMMAR.items():
        alternatives = [alternative.split() for alternative in text.split("|")]
        weights = list(accumulate(int(weight) for weight, *_ in alternatives))
        rules[name] = weights, [tuple(symbols) for _, *symbols in alternatives]
    return rules


def _words() -> dict[str, list[str]]:
    """The words of every class, as often as they count."""
    words: dict[str, list[str]] = {}
    for name, (_, text) in LEXICON.items():
        pairs = [entry.partition("*") for entry in text.split()]
        words[name] = [word for word, _, times in pairs for _ in range(int(times or 1))]
    return words


_RULES, _WORDS = _rules(), _words()


def sentences(count: int, rng: np.random.Generator) -> list[Tagged]:
    """That many sentences, equal ones included; the first letter is a capital; a third of the forms are ambiguous."""
    return [_sentence(rng) for _ in range(count)]


def _sentence(rng: np.random.Generator) -> Tagged:
    words: list[tuple[str, str]] = []
    pending = [START]
    while pending:
        symbol = pending.pop()
        if symbol in _RULES:
            weights, alternatives = _RULES[symbol]
            pending.extend(reversed(alternatives[bisect(weights, rng.random() * weights[-1])]))
        else:
            choices = _WORDS[symbol]
            words.append((choices[int(rng.random() * len(choices))], LEXICON[symbol][0]))
    tokens, tags = zip(*words, strict=True)
    return Tagged(_spell(tokens), tags)


def _spell(words: Sequence[str]) -> tuple[str, ...]:
    """`an` before a vowel, a capital at the beginning."""
    following = [*words[1:], ""]
    pairs = zip(words, following, strict=True)
    spelt = ["an" if word == "a" and after.startswith(tuple("aeiou")) else word for word, after in pairs]
    return (spelt[0][0].upper() + spelt[0][1:], *spelt[1:])


def splits(
    seed: int, train: int = 3000, dev: int = 300, test: int = 500
) -> tuple[list[Tagged], list[Tagged], list[Tagged]]:
    """Train, dev and test sentences, no two of them equal and none of them the lecture's."""
    rng = np.random.default_rng(seed)
    unique: dict[tuple[str, ...], Tagged] = {}
    while len(unique) < train + dev + test:
        sentence = _sentence(rng)
        if sentence.tokens[:4] != HELD_OUT:
            unique.setdefault(sentence.tokens, sentence)
    data = list(unique.values())
    return data[:train], data[train : train + dev], data[train + dev :]


def ambiguous_forms(data: Iterable[Tagged]) -> dict[str, set[str]]:
    """The forms that were seen with two tags or more, and those tags."""
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for sentence in data:
        for token, tag in zip(sentence.tokens, sentence.tags, strict=True):
            seen[token].add(tag)
    return {form: tags for form, tags in seen.items() if len(tags) > 1}
