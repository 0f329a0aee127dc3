"""Seq2Seq: teacher forcing against decoding step by step, causality, padding, search with a real decoder."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.check.gradcheck import gradcheck, gradgradcheck
from models import Seq2Seq, beam_search, greedy

POSITIONS = ["none", "sinusoidal", "learned", "relative"]
BOS, EOS = 1, 2
SOURCE = np.array([[3, 1, 4, 1], [5, 2, 0, 0], [6, 0, 0, 0]])
SOURCE_VALID = SOURCE != 0
TARGET = np.array([[1, 3, 4, 3, 5], [1, 5, 3, 0, 0], [1, 0, 0, 0, 0]])
TARGET_VALID = TARGET != 0


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def model_of(positions="sinusoidal", seed=1, **options):
    """With random parameters throughout; the padding rows of the embeddings stay 0."""
    options = {"blocks": 2, "heads": 2, "hidden": 6, "max_length": 12, "dtype": np.float64, **options}
    model = Seq2Seq(8, 6, 4, positions=positions, rng=np.random.default_rng(seed), **options)
    rng = np.random.default_rng(seed)
    state = {name: a + 0.3 * rng.normal(size=a.shape) for name, a in model.state_dict().items()}
    state["source.weight"][0] = state["target.weight"][0] = 0
    model.load_state_dict(state)
    return model


def logits_of(model, source=SOURCE, target=TARGET, source_valid=SOURCE_VALID, target_valid=TARGET_VALID):
    return model(source, target, source_valid=source_valid, target_valid=target_valid)


def log_softmax(z):
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def test_equals_its_parts():
    model = model_of()
    context = model.encoder(2 * model.source.weight.data[SOURCE], valid=SOURCE_VALID)
    h = model.decoder(
        2 * model.target.weight.data[TARGET],
        valid=TARGET_VALID,
        mask=np.tril(np.ones((5, 5), bool)),
        context=context,
        context_valid=SOURCE_VALID,
    )
    wanted = h.data @ model.target.weight.data.T
    np.testing.assert_allclose(logits_of(model).data, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("positions", POSITIONS)
def test_teacher_forcing_equals_decoding_step_by_step(positions):
    model = model_of(positions)
    whole = log_softmax(logits_of(model, target_valid=np.ones(TARGET.shape, bool)).data)
    step = model.decoding(SOURCE, SOURCE_VALID)
    for t in range(TARGET.shape[1]):
        np.testing.assert_allclose(step(TARGET[:, : t + 1]), whole[:, t], rtol=0, atol=1e-12)


def test_a_decoder_reads_one_symbol_at_a_time():
    step = model_of().decoding(SOURCE, SOURCE_VALID)
    step(TARGET[:, :1])
    for wrong in (TARGET[:, :1], TARGET[:, :3]):
        with pytest.raises(ValueError, match="one more"):
            step(wrong)


@pytest.mark.parametrize("positions", POSITIONS)
def test_future_symbols_change_nothing(positions):
    model, valid = model_of(positions), np.ones(TARGET.shape, bool)
    before = logits_of(model, target_valid=valid).data
    for t in range(TARGET.shape[1] - 1):
        changed = TARGET.copy()
        changed[:, t + 1 :] = (changed[:, t + 1 :] + 2) % 6
        after = logits_of(model, target=changed, target_valid=valid).data
        np.testing.assert_array_equal(after[:, : t + 1], before[:, : t + 1])
        assert (after[:, t + 1 :] != before[:, t + 1 :]).any()


def gradients(model, source, target, source_valid, target_valid, cotangents):
    for parameter in model.parameters():
        parameter.grad = None
    logits = logits_of(model, source, target, source_valid, target_valid)
    cotangent = np.zeros(logits.shape)
    cotangent[target_valid] = cotangents
    logits.backward(cotangent)
    return logits.data[target_valid], {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("junk", [7, -1, 10**9])
@pytest.mark.parametrize("positions", POSITIONS)
def test_what_stands_in_padding_changes_no_bit(positions, junk):
    model, cotangents = model_of(positions), random(TARGET_VALID.sum(), 6)
    wanted, wanted_gradients = gradients(model, SOURCE, TARGET, SOURCE_VALID, TARGET_VALID, cotangents)
    source, target = np.where(SOURCE_VALID, SOURCE, junk), np.where(TARGET_VALID, TARGET, junk)
    found, found_gradients = gradients(model, source, target, SOURCE_VALID, TARGET_VALID, cotangents)
    np.testing.assert_array_equal(found, wanted)
    for name, gradient in wanted_gradients.items():
        np.testing.assert_array_equal(found_gradients[name], gradient, err_msg=name)


def moved(ids, left, right):
    """The ids with padding added; with no padding on the right, rows end together."""
    padded = np.pad(ids, ((0, 0), (left, right)))
    if right == 0:
        for row in padded:
            row[:] = np.roll(row, np.count_nonzero(row[::-1].cumsum() == 0))
    return padded


@pytest.mark.parametrize(("left", "right"), [(0, 3), (2, 0), (2, 1)])
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_padded_batch_equals_its_rows_alone_b114(positions, left, right):
    model, cotangents = model_of(positions), random(TARGET_VALID.sum(), 6)
    source, target = moved(SOURCE, left, right), moved(TARGET, left, right)
    logits, sums = gradients(model, source, target, source != 0, target != 0, cotangents)
    place, alone_sums = 0, dict.fromkeys(sums, 0.0)
    for s, t in zip(SOURCE, TARGET):
        s, t = s[None, s != 0], t[None, t != 0]
        part = slice(place, place := place + t.size)
        alone, own = gradients(model, s, t, s != 0, t != 0, cotangents[part])
        np.testing.assert_allclose(logits[part], alone, rtol=0, atol=1e-12)
        alone_sums = {name: alone_sums[name] + gradient for name, gradient in own.items()}
    for name, gradient in sums.items():
        np.testing.assert_allclose(gradient, alone_sums[name], rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("positions", POSITIONS)
def test_decoding_does_not_see_padding(positions):
    model = model_of(positions)
    plain, wide = model.decoding(SOURCE, SOURCE_VALID), model.decoding(moved(SOURCE, 3, 0), moved(SOURCE, 3, 0) != 0)
    junk = model.decoding(np.where(SOURCE_VALID, SOURCE, -1), SOURCE_VALID)
    for t in range(3):
        wanted = plain(TARGET[:, : t + 1])
        np.testing.assert_allclose(wide(TARGET[:, : t + 1]), wanted, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(junk(TARGET[:, : t + 1]), wanted)


def test_a_source_without_symbols_and_a_batch_without_rows():
    model = model_of()
    valid = SOURCE_VALID.copy()
    valid[1] = False
    logits = logits_of(model, source_valid=valid)
    logits.backward(np.ones(logits.shape))
    assert np.isfinite(logits.data).all()
    assert all(np.isfinite(p.grad).all() for p in model.parameters())
    others = [0, 2]
    np.testing.assert_allclose(logits.data[others], logits_of(model).data[others], rtol=0, atol=1e-12)
    none = np.zeros((0, 3), int), np.zeros((0, 2), int), np.zeros((0, 3), bool), np.zeros((0, 2), bool)
    assert logits_of(model, *none).shape == (0, 2, 6)
    assert greedy(model.decoding(none[0], none[2]), [], EOS, 4) == []
    assert beam_search(model.decoding(none[0], none[2]), [], EOS, 2, 4) == []


def test_wrong_valid_raises():
    model = model_of()
    with pytest.raises(TypeError, match="boolean"):
        logits_of(model, source_valid=SOURCE_VALID.astype(int))
    with pytest.raises(TypeError, match="boolean"):
        logits_of(model, target_valid=TARGET_VALID.astype(int))
    with pytest.raises(ValueError, match="valid"):
        logits_of(model, target_valid=SOURCE_VALID)
    with pytest.raises(IndexError):
        logits_of(model, source=np.where(SOURCE_VALID, 8, 0))


# --- search ------------------------------------------------------------------------------------------------------


def lists(arrays):
    return [array.tolist() for array in arrays]


class WithoutCaches:
    """The step function as teacher forcing: the whole decoder anew for every symbol, nothing remembered."""

    def __init__(self, model, source, source_valid):
        self.model, self.source, self.valid = model, source, source_valid
        self.owner = np.arange(len(source))

    def __call__(self, ids):
        source, valid = self.source[self.owner], self.valid[self.owner]
        logits = self.model(source, ids, source_valid=valid, target_valid=np.ones(ids.shape, bool))
        return log_softmax(logits.data[:, -1])

    def reorder(self, rows):
        self.owner = self.owner[rows]


@pytest.mark.parametrize("beam", [1, 2, 3, 7])
@pytest.mark.parametrize("positions", POSITIONS)
def test_search_with_caches_equals_search_without_b102(positions, beam):
    for seed in range(3):
        model = model_of(positions, seed=seed)
        bos = np.full(3, BOS)
        cached = beam_search(model.decoding(SOURCE, SOURCE_VALID), bos, EOS, beam, 6, 0.7)
        assert lists(cached) == lists(beam_search(WithoutCaches(model, SOURCE, SOURCE_VALID), bos, EOS, beam, 6, 0.7))
        for row, sequence in enumerate(cached):
            source = SOURCE[row : row + 1, SOURCE_VALID[row]]
            alone = beam_search(model.decoding(source, source != 0), [BOS], EOS, beam, 6, 0.7)
            assert lists(alone) == [sequence.tolist()]


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_beam_of_one_is_greedy(positions):
    lengths = set()
    for seed in range(8):
        model = model_of(positions, seed=seed)
        bos = np.full(3, BOS)
        found = greedy(model.decoding(SOURCE, SOURCE_VALID), bos, EOS, 6)
        assert lists(beam_search(model.decoding(SOURCE, SOURCE_VALID), bos, EOS, 1, 6)) == lists(found)
        assert lists(greedy(WithoutCaches(model, SOURCE, SOURCE_VALID), bos, EOS, 6)) == lists(found)
        assert not any(EOS in sequence for sequence in found)
        lengths |= {len(sequence) for sequence in found}
    assert max(lengths) <= 6
    assert len(lengths) > 1  # rows do end at different lengths


def test_decoding_records_nothing():
    model = model_of()
    step = model.decoding(SOURCE, SOURCE_VALID)
    step(TARGET[:, :1])
    kept = [t for cache in step._caches for t in (*cache.context, *cache._own)]
    assert len(kept) == 8
    assert not any(t.requires_grad for t in kept)


# --- gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", ["sinusoidal", "relative"])
def test_gradients_of_both_orders(positions):
    """Each parameter p as p + t d with a random direction d, and t one number."""
    model = model_of(positions, blocks=1, hidden=3)
    state = model.state_dict()
    directions = {name: random(*a.shape, seed=number) for number, (name, a) in enumerate(state.items())}
    directions["source.weight"][0] = directions["target.weight"][0] = 0

    def loss(t):
        parameters = {name: state[name] + t[name] * directions[name] for name in t}
        valid = {"source_valid": SOURCE_VALID, "target_valid": TARGET_VALID}
        logits = nn.functional_call(model, parameters, SOURCE, TARGET, **valid)
        return nn.cross_entropy(logits, np.roll(TARGET, -1, axis=1), mask=TARGET_VALID)

    start = {name: np.zeros(()) for name in state}
    assert gradcheck(loss, (start,))
    assert gradgradcheck(loss, (start,))


def test_gradients_of_every_parameter():
    model = model_of("learned", blocks=1, heads=1, hidden=3, max_length=5)
    state = model.state_dict()
    padding = {name: state[name][:1] for name in ("source.weight", "target.weight")}
    rest = {name: a[1:] if name in padding else a for name, a in state.items()}

    def call(p):
        tables = {name: mg.concatenate([padding[name], p[name]]) for name in padding}  # row 0 is 0
        valid = {"source_valid": SOURCE_VALID, "target_valid": TARGET_VALID}
        logits = nn.functional_call(model, {**p, **tables}, SOURCE, TARGET, **valid)
        return mg.where(TARGET_VALID[..., None], logits, 0.0)

    assert gradcheck(call, (rest,))


def test_symbols_that_are_never_to_come_out_never_do():
    model, rng = Seq2Seq(6, 5, 8, blocks=1, heads=2, rng=np.random.default_rng(0)).eval(), np.random.default_rng(1)
    source, valid = rng.integers(1, 6, (20, 4)), np.ones((20, 4), bool)
    free = model.decoding(source, valid)(np.ones((20, 1), int))
    bound = model.decoding(source, valid, never=(0, 3))(np.ones((20, 1), int))
    assert (bound[:, [0, 3]] == -np.inf).all()
    np.testing.assert_array_equal(bound[:, [1, 2, 4]], free[:, [1, 2, 4]])
    for ids in greedy(model.decoding(source, valid, never=(0, 3)), np.ones(20, int), 4, 6):
        assert not np.isin(ids, [0, 3]).any()
