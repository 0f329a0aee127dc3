"""The three scenarios: what is scored and how, what a labeller remembers, and that training teaches something."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from experiments import per_vector, single
from experiments.data import english, numerals, speakers
from experiments.data.conllu import Tagged
from experiments.data.features import FAMILIES
from experiments.data.ts import Frames
from experiments.data.tsv import Pair
from experiments.per_vector import LECTURE, PerVectorTask
from experiments.seq2seq import Seq2SeqTask, Translator, edit_distance
from experiments.settings import PerVectorSettings, Seq2SeqSettings, SingleSettings, UsageError
from experiments.single import SingleTask
from experiments.task import headline
from experiments.training import Training
from minigrad.study import capture
from models import AttentionStack, PerVector, SummedEmbedding

SHAPE = {"dim": 8, "heads": 2, "blocks": 1, "hidden": 8}
NAMES = ("train", "dev", "test")


def trained(task):
    mg.seed(task.settings.seed)
    Training(task).run(lambda training: None)
    task.model.eval()
    return task


@pytest.fixture(scope="module")
def tasks():
    """One of each scenario, untrained."""
    mg.seed(0)
    sentences = dict(zip(NAMES, english.splits(0, train=60, dev=10, test=10)))
    frames = dict(zip(NAMES, speakers.splits(0, train=3, dev=2, test=2)))
    pairs = dict(zip(NAMES, numerals.splits(0, train=100, dev=5, test=5)))
    found = [
        PerVectorTask(PerVectorSettings(**SHAPE), sentences),
        SingleTask(SingleSettings(**SHAPE), frames),
        Seq2SeqTask(Seq2SeqSettings(**SHAPE), pairs, words=True),
    ]
    for task in found:
        task.model.eval()
    return {task.scenario: task for task in found}


@pytest.mark.parametrize("scenario", ["per-vector", "single", "seq2seq"])
class TestEveryScenario:
    def inputs(self, task):
        data = task.splits["test"]
        if isinstance(data, Frames):
            return data.sequences
        return [item.tokens if isinstance(item, Tagged) else item.source for item in data]

    def test_a_labeller_comes_back_from_json_and_weights(self, scenario, tasks):
        task = tasks[scenario]
        state = json.loads(json.dumps(task.labeller.to_json()))
        again = task.labeller_class.from_json(task.settings, state)
        again.model.load_state_dict(task.model.state_dict())
        again.model.eval()
        assert again.label(self.inputs(task)) == task.labeller.label(self.inputs(task))
        assert again.to_json() == task.labeller.to_json()

    def test_labels_do_not_depend_on_who_shares_the_batch(self, scenario, tasks):
        task = tasks[scenario]
        together = task.labeller.label(self.inputs(task))
        assert together == [task.labeller.label([one])[0] for one in self.inputs(task)]

    def test_batches_have_every_example_once_and_keep_to_their_size(self, scenario, tasks):
        task = tasks[scenario]
        batches = task.batches(np.random.default_rng(0))
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(np.concatenate(batches))))
        assert max(map(len, batches)) <= task.settings.batch_size
        assert len(np.concatenate(batches)) == {"per-vector": 60, "single": 18, "seq2seq": 100}[scenario]

    def test_a_loss_has_a_gradient_for_every_parameter(self, scenario, tasks):
        task = tasks[scenario]
        task.loss(*task.arrays(np.arange(10), np.random.default_rng(0))).backward()
        for name, p in task.model.named_parameters():
            assert p.grad is not None, name
            assert np.isfinite(p.grad).all(), name
            p.grad = None

    def test_the_example_fits_its_names(self, scenario, tasks):
        args, kwargs, queries, keys, part = tasks[scenario].example()
        assert part == ""
        with mg.no_grad(), capture(tasks[scenario].model) as caught:
            tasks[scenario].model(*args, **kwargs)
        assert list(caught.values())[-1].value.shape == (1, 2, len(queries), len(keys))

    def test_a_summary_has_the_score(self, scenario, tasks):
        metrics = tasks[scenario].evaluate("test")
        assert f"{metrics[tasks[scenario].score_name]:.4f}" in tasks[scenario].summary(metrics)


def test_the_summary_of_utterances_counts_classes(tasks):
    said = tasks["single"].summary({"accuracy": 0.5})
    assert said == "0.5000 of the sequences got the right label (of 6 classes)"


def test_without_test_data_the_headline_says_that_it_is_of_dev():
    assert headline({"dev": "half is right", "test": "a third is right"}) == "a third is right"
    assert headline({"dev": "half is right"}).startswith("half is right: on dev, by which the best epoch was chosen")


def test_a_long_example_is_not_drawn_where_there_is_a_short_one_and_cut_where_there_is_none():
    def tasks_of(*lengths):
        sentences = [Tagged(("a",) * n, ("X",) * n) for n in lengths]
        frames = Frames([np.zeros((n, 2), np.float32) for n in lengths], ["x"] * len(lengths))
        pairs = [Pair(("a",) * n, ("b",) * n) for n in lengths]
        yield PerVectorTask(PerVectorSettings(**SHAPE), {"train": sentences, "dev": sentences})
        yield SingleTask(SingleSettings(**SHAPE), {"train": frames, "dev": frames})
        yield Seq2SeqTask(Seq2SeqSettings(**SHAPE), {"train": pairs, "dev": pairs}, words=False)

    whole = [task.example() for task in tasks_of(400, 10, 9)]
    assert [(len(drawn.keys), drawn.part) for drawn in whole] == [(12, ""), (10, ""), (10, "")]
    cut = [task.example() for task in tasks_of(450, 400)]
    assert [(len(drawn.queries), len(drawn.keys)) for drawn in cut] == [(64, 64)] * 3
    assert [drawn.part for drawn in cut] == [
        "the first 62 of 400 words",
        "the first 64 of 400 vectors",
        "the first 64 of 400 symbols",
    ]


# --- per vector --------------------------------------------------------------------------------------------------


def fixed(labels):
    """A labeller's label() that knows the answers."""
    return lambda inputs: labels


def test_tags_are_scored_over_words_ambiguous_forms_and_unknown_forms(monkeypatch):
    train = [Tagged(("can", "run"), ("AUX", "VERB")), Tagged(("can", "Run"), ("NOUN", "VERB"))]
    test = [Tagged(("can", "run", "dog"), ("AUX", "VERB", "XYZ")), Tagged(("can",), ("NOUN",))]
    task = PerVectorTask(PerVectorSettings(**SHAPE), {"train": train, "test": test})
    monkeypatch.setattr(task.labeller, "label", fixed([["AUX", "VERB", "NOUN"], ["AUX"]]))
    assert task.evaluate("test") == {"accuracy": 2 / 4, "accuracy_ambiguous": 1 / 2, "accuracy_unknown": 0.0}
    assert task.unknown_labels("test") == 1
    assert task.unknown_labels("train") == 0


def test_a_hidden_word_keeps_its_looks(tasks):
    task = tasks["per-vector"]
    hidden = PerVectorTask(replace(task.settings, word_dropout=0.999999), task.splits)
    seen = []
    hidden.labeller.model = lambda ids, valid: seen.append(ids) or task.model(ids, valid=valid)
    hidden.loss(*hidden.arrays(np.array([0]), np.random.default_rng(0)))
    [ids], plain = seen[0], hidden._ids[0]
    column = hidden.labeller.features.word_column
    assert (ids[1:-1, column] == hidden.labeller.features.unknown_word).all()
    assert (ids[[0, -1]] == plain[[0, -1]]).all()  # not the symbols at both ends
    others = np.arange(len(FAMILIES)) != column
    assert (ids[:, others] == plain[:, others]).all()
    again = hidden.labeller.features.encode(task.splits["train"][0].tokens, boundaries=True)
    assert (plain == again).all()  # the task's own ids are left alone


def test_without_positions_both_saw_have_the_same_logits_and_with_them_not():
    """Trained weights, computed in float64."""
    data = dict(zip(NAMES, english.splits(0, train=100, dev=10, test=10)))
    for positions, same in (("none", True), ("relative", False)):
        settings = PerVectorSettings(**SHAPE, positions=positions, epochs=2, lr=1e-2)
        task = trained(PerVectorTask(settings, data))
        ids, valid = task.labeller.encode([LECTURE])
        words = SummedEmbedding(task.labeller.features.size, 8, features=len(FAMILIES), dtype=np.float64)
        stack = AttentionStack(8, blocks=1, heads=2, hidden=8, positions=positions, dtype=np.float64)
        model = PerVector(words, stack, 8, len(task.labeller.tags), dtype=np.float64).eval()
        model.load_state_dict(task.model.state_dict())
        logits = model(ids, valid=valid).numpy()[0]
        assert logits.dtype == np.float64
        difference = np.abs(logits[2] - logits[4]).max()
        assert difference <= 1e-12 if same else difference > 1e-2
        np.testing.assert_allclose(task.model(ids, valid=valid).numpy()[0], logits, atol=1e-4)


def test_self_attention_learns_what_the_context_tells():
    """I saw a saw is PRON VERB DET NOUN, though training has not shown it; FC alone cannot know."""
    settings = replace(per_vector.EMBEDDED, dim=32, hidden=32, heads=4, blocks=1, epochs=4, lr=1e-2, seed=0)
    assert settings.positions == "relative"
    data = dict(zip(NAMES, english.splits(0, train=1500, dev=100, test=200)))
    task = trained(PerVectorTask(settings, data))
    assert task.labeller.label([LECTURE]) == [["PRON", "VERB", "DET", "NOUN"]]
    assert task.labeller.predict("I saw a saw") == ["I/PRON saw/VERB a/DET saw/NOUN"]
    with_context = task.evaluate("test")["accuracy_ambiguous"]
    alone = trained(PerVectorTask(replace(settings, model="fc", epochs=2), data)).evaluate("test")["accuracy_ambiguous"]
    assert with_context > 0.9
    assert alone < 0.8


# --- single ------------------------------------------------------------------------------------------------------


def test_labels_that_train_lacks_are_wrong(monkeypatch, tasks):
    sequences = tasks["single"].splits["test"].sequences[:3]
    splits = {**tasks["single"].splits, "test": Frames(sequences, ["Anna", "Nobody", "Ben"])}
    task = SingleTask(tasks["single"].settings, splits)
    monkeypatch.setattr(task.labeller, "label", fixed(["Anna", "Anna", "Anna"]))
    assert task.unknown_labels("test") == 1
    assert task.evaluate("test") == {"accuracy": 1 / 3}


def test_frames_are_standardised_by_the_training_data_or_by_themselves(tasks):
    train = tasks["single"].splits["train"]
    prepared = [tasks["single"].labeller.prepare(sequence) for sequence in train.sequences]
    np.testing.assert_allclose(np.concatenate(prepared).mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(prepared).std(0), 1, atol=1e-5)
    own = SingleTask(SingleSettings(**SHAPE, standardise="utterance"), tasks["single"].splits).labeller
    np.testing.assert_allclose(own.prepare(train.sequences[0]).mean(0), 0, atol=1e-5)


def test_only_training_distorts_frames(tasks):
    settings = replace(single.NPZ, **SHAPE)
    labeller = SingleTask(settings, tasks["single"].splits).labeller
    frames = tasks["single"].splits["train"].sequences[0]
    assert labeller.prepare(frames).shape == (32, 24)  # resampled, and beside each frame how it changes
    assert (labeller.prepare(frames) == labeller.prepare(frames)).all()
    first, second = (labeller.prepare(frames, np.random.default_rng(seed)) for seed in (0, 1))
    assert (first != second).any()
    assert (first == labeller.prepare(frames, np.random.default_rng(0))).all()


def test_speakers_are_learnt_from_the_order_of_their_sounds():
    settings = replace(single.EMBEDDED, dim=32, hidden=32, epochs=16, lr=5e-3, dropout=0.0)
    mg.seed(0)  # of the initial weights
    data = dict(zip(NAMES, speakers.splits(0, train=40, dev=10, test=20)))
    score = trained(SingleTask(settings, data)).evaluate("test")["accuracy"]
    alone = trained(SingleTask(replace(settings, model="fc", epochs=3), data)).evaluate("test")["accuracy"]
    assert score > 0.8
    assert alone < 0.4


# --- seq2seq -----------------------------------------------------------------------------------------------------


def test_sequences_are_scored_whole_and_by_edits(monkeypatch):
    train = [Pair(("a", "b"), ("x", "y")), Pair(("b",), ("y",))]
    test = [Pair(("a",), ("x", "y")), Pair(("c",), ("y", "z", "y"))]
    task = Seq2SeqTask(Seq2SeqSettings(**SHAPE), {"train": train, "test": test}, words=False)
    monkeypatch.setattr(task.labeller, "label", fixed([["x", "y"], ["y"]]))
    assert task.evaluate("test") == {"wer": 0.5, "per": 2 / 5, "exact_match": 0.5}
    assert task.unknown_labels("test") == 1


def test_output_ends_at_the_limit_or_before(tasks):
    task = tasks["seq2seq"]
    longest = max(len(pair.target) for pair in task.splits["train"])
    assert task.labeller.limit == longest + 5
    assert all(len(symbols) <= longest + 5 for symbols in task.labeller.label([("nine",), ("unheard", "of")]))


def score(task, source, symbols):
    """The mean log-probability of the symbols and the end, but for the end if the limit came first."""
    target = task.labeller.target
    ids = np.array([[target.bos, *target.encode(symbols), target.eos]])
    encoded = task.labeller.source.encode(source)[None]
    real = {"source_valid": np.ones(encoded.shape, bool), "target_valid": np.ones((1, ids.shape[1] - 1), bool)}
    logp = mg.log_softmax(task.model(encoded, ids[:, :-1], **real), axis=-1).numpy()[0]
    chosen = logp[np.arange(len(logp)), ids[0, 1:]][: task.labeller.limit]
    return chosen.mean()


def test_a_beam_finds_what_is_at_least_as_likely(tasks):
    task = tasks["seq2seq"]
    wide = Translator.from_json(replace(task.settings, beam=4), task.labeller.to_json())
    wide.model.load_state_dict(task.model.state_dict())
    wide.model.eval()
    sources = [pair.source for pair in task.splits["test"]]
    for source, narrow, found in zip(sources, task.labeller.label(sources), wide.label(sources)):
        assert score(task, source, found) >= score(task, source, narrow) - 1e-5


def test_texts_fall_into_words_or_characters(tasks):
    assert tasks["seq2seq"].labeller.predict("Twenty-One") == tasks["seq2seq"].labeller.predict("twenty one")
    pairs = [Pair(tuple("ab"), ("x", "yy")), Pair(tuple("ba"), ("yy", "x"))]
    task = trained(
        Seq2SeqTask(Seq2SeqSettings(**SHAPE, epochs=60, lr=3e-2, dropout=0.0), {"train": pairs}, words=False)
    )
    assert task.labeller.predict("ab") == ["x yy"]
    assert task.labeller.predict("ba") == ["yy x"]


def plain_distance(a, b):
    if not a or not b:
        return len(a) + len(b)
    replaced = plain_distance(a[1:], b[1:]) + (a[0] != b[0])
    return min(replaced, plain_distance(a[1:], b) + 1, plain_distance(a, b[1:]) + 1)


@given(st.text("ab", max_size=5), st.text("abc", max_size=5))
def test_edit_distance_is_what_its_definition_says(a, b):
    assert edit_distance(a, b) == plain_distance(a, b)


# --- learned positions -------------------------------------------------------------------------------------------


def test_sequences_beyond_learned_positions_are_refused_before_training_and_in_prediction():
    long = Tagged(("a",) * 511, ("DET",) * 511)
    short = Tagged(("a", "dog"), ("DET", "NOUN"))
    learned = PerVectorSettings(**SHAPE, positions="learned")
    for splits in ({"train": [long]}, {"train": [short], "test": [long]}):
        with pytest.raises(UsageError, match="reaches 512 vectors, and a sequence has 513"):
            PerVectorTask(learned, splits)
    task = PerVectorTask(learned, {"train": [short]})
    with pytest.raises(UsageError, match="reaches 512 vectors"):
        task.labeller.label([long.tokens])
    assert len(task.labeller.label([long.tokens[:510]])[0]) == 510
    PerVectorTask(replace(learned, model="fc"), {"train": [long]})  # no positions, no limit
    frames = Frames([np.zeros((600, 2), np.float32)], ["a"])
    with pytest.raises(UsageError, match="a sequence has 600"):
        SingleTask(SingleSettings(**SHAPE, positions="learned"), {"train": frames})
    SingleTask(SingleSettings(**SHAPE, positions="learned", frames=20), {"train": frames})
    with pytest.raises(UsageError, match="a sequence has 605"):
        Seq2SeqTask(Seq2SeqSettings(**SHAPE, positions="learned"), {"train": [Pair(("a",), ("x",) * 600)]}, words=False)
