"""Which examples a report looks at, and that those of long data are cut, and say so."""

import numpy as np
import pytest

import minigrad as mg
from experiments.data.conllu import Tagged
from experiments.data.ts import Frames
from experiments.data.tsv import Pair
from experiments.per_vector import PerVectorTask
from experiments.report import examples
from experiments.report.measures import attribution
from experiments.seq2seq import Seq2SeqTask
from experiments.settings import PerVectorSettings, Seq2SeqSettings, SingleSettings
from experiments.single import SingleTask

SHAPE = {"dim": 8, "heads": 2, "blocks": 1, "hidden": 8}


def framed(lengths, **settings):
    frames = Frames([np.full((n, 2), n, np.float32) for n in lengths], [f"of {n}" for n in lengths])
    return SingleTask(SingleSettings(**SHAPE, **settings), {"train": frames, "dev": frames})


def tagged(length):
    sentence = Tagged(tuple(f"w{i}" for i in range(length)), ("NOUN",) * length)
    return PerVectorTask(PerVectorSettings(**SHAPE), {"train": [sentence], "dev": [sentence]})


def paired(length):
    pair = Pair(("a",) * length, ("b",) * (length + 1))
    return Seq2SeqTask(Seq2SeqSettings(**SHAPE), {"train": [pair], "dev": [pair]}, words=False)


def test_short_ones_are_whole_and_come_first():
    found = examples.probes(framed([300, 12, 24, 25]))
    assert [example.title(0) for example in found] == [
        "of 12, 12 vectors",
        "of 24, 24 vectors",
        "of 25, the first 24 of 25 vectors",
    ]
    assert [example.inputs[0].shape[1] for example in found] == [12, 24, 24]
    assert [example.part(0) for example in found] == ["", "", "the first 24 of 25 vectors"]


def test_what_is_resampled_to_few_frames_is_short():
    [example] = examples.probes(framed([2000], frames=10))
    assert example.title(0) == "of 2000, 10 vectors"


def test_long_sentences_and_pairs_are_cut_with_their_labels():
    [sentence], [pair] = examples.probes(tagged(400)), examples.probes(paired(400))
    assert sentence.labels.shape == sentence.inputs[0].shape[:2] == (1, 24)
    assert sentence.title(0).endswith("w11 … (the first 22 of 400 words)")
    assert [x.shape for x in pair.inputs] == [(1, 24), (1, 25)]
    assert pair.title(0).endswith("(the first 24 of 401 symbols)")


def test_what_is_explained_says_that_it_is_a_part():
    mg.seed(0)
    task = framed([100])
    [example] = examples.probes(task)
    weights = task.model.state_dict()
    assert attribution(task.model, weights, example, 0, ["of 100"]).explained == (
        "the logit of of 100 for the first 24 of 100 vectors"
    )


@pytest.mark.parametrize(("lengths", "count"), [([50] * 40, 32), ([900, 700, 5000, 8000, 9000], 2), ([30_000], 1)])
def test_a_batch_of_long_ones_is_small_and_of_whole_sequences(lengths, count):
    batch = examples.batch(framed(lengths))
    x = batch.inputs[0]
    assert len(x) == count
    assert len(x) <= 2 or x.shape[0] * x.shape[1] <= examples.VECTORS
    assert not any(map(batch.part, range(count)))
