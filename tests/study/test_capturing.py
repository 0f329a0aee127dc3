"""capture, patch, stop_gradient: values by hand, gradients by finite differences of patched values, nothing left."""

import contextlib
import copy
import gc
import threading
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad import engine, nn
from minigrad.study import calls, capture, patch, points, recording, stop_gradient
from models import (
    AttentionStack,
    FCStack,
    PerVector,
    SelfAttention,
    Seq2Seq,
    Single,
    SummedEmbedding,
    causal_mask,
)

BATCH, N, M, DIM = 2, 4, 3, 6
POINTS = ["x", "q", "k", "v", "scores", "attn", "out"]


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    before = set(engine.observers)
    yield
    assert set(engine.observers) <= before


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def layer_of(heads=1, **options):
    return SelfAttention(DIM, heads, rng=np.random.default_rng(1), dtype=np.float64, **options)


def stack_of(**options):
    return AttentionStack(DIM, rng=np.random.default_rng(1), dtype=np.float64, **{"blocks": 2, "heads": 2, **options})


def scalar(output):
    """A loss that is neither linear nor symmetric in any output."""
    weights = random(*output.shape, seed=9)
    return (mg.tanh(output) * weights).sum() + (output * output * weights[::-1]).sum()


def assert_gradients_are_slopes(model, loss, names="*", directions=2):
    """Every captured gradient against a central difference of the loss in the value that is patched in."""
    with capture(model, names) as caught:
        loss().backward()
    rng = np.random.default_rng(5)
    seen = 0
    for name, point in caught.items():
        if len(point.calls) != 1 or point.grad is None:
            continue
        seen += 1
        for _ in range(directions):
            step = 1e-5 * rng.normal(size=point.value.shape)
            with patch(model, {name: point.value + step}):
                above = loss().item()
            with patch(model, {name: point.value - step}):
                below = loss().item()
            slope = (point.grad * step).sum()
            assert abs((above - below) / 2 - slope) <= 1e-8 * np.abs(step).max() + 1e-6 * abs(slope), name
    return caught, seen


LAYERS = [
    ({}, {}),
    ({"heads": 2}, {}),
    ({"heads": 3, "score": "dot", "positions": "relative"}, {"causal": True}),
    ({"heads": 2, "key_dim": 4, "value_dim": 5}, {"padded": True}),
    ({"heads": 2, "score": "additive"}, {"causal": True, "padded": True}),
    ({"normalise": "relu"}, {"causal": True}),
    ({"heads": 2}, {"cross": True, "padded": True}),
    ({"score": "additive", "normalise": "relu", "positions": "relative"}, {"cross": True}),
    ({"heads": 2}, {"blind": True}),
]


def options_of(causal=False, padded=False, cross=False, blind=False):
    """What a SelfAttention is called with beside x."""
    options = {}
    if causal:
        options["mask"] = causal_mask(N)
    if blind:  # a query that may look at nothing, and a key that nobody may look at
        options["mask"] = np.ones((N, N), bool)
        options["mask"][1], options["mask"][:, 2] = False, False
    if cross:
        options["context"] = random(BATCH, M, DIM, seed=2)
    if padded:
        valid = np.ones((BATCH, M if cross else N), bool)
        valid[0, 2:] = False
        options["context_valid" if cross else "valid"] = valid
    return options


# --- values and gradients of a layer -----------------------------------------------------------------------------


class Fed(nn.Module):
    """A layer whose x is made from a parameter, so that it has a gradient too."""

    def __init__(self, layer):
        self.layer = layer
        self.given = nn.Parameter(random(BATCH, N, DIM))

    def forward(self, **options):
        return self.layer(self.given * 1.0, **options)


@pytest.mark.parametrize(("layer_options", "call_options"), LAYERS, ids=str)
def test_gradients_of_a_layer_are_slopes_of_the_loss_in_patched_values(layer_options, call_options):
    model, options = Fed(layer_of(**layer_options)), options_of(**call_options)
    caught, seen = assert_gradients_are_slopes(model, lambda: scalar(model(**options)), "layer.*")
    assert seen >= len(POINTS)
    assert all(caught[f"layer.{point}"].grad.any() for point in POINTS)


@pytest.mark.parametrize("call_options", [{}, {"causal": True, "padded": True}, {"cross": True}], ids=str)
def test_each_point_is_seen_also_when_nothing_else_is_watched(call_options):
    """Whatever fused path the layer would take: what is watched is computed."""
    model, options = Fed(layer_of(2, positions="relative")), options_of(**call_options)
    with capture(model, "*") as together:
        scalar(model(**options)).backward()
    for name, point in together.items():
        with capture(model, name) as alone:
            scalar(model(**options)).backward()
        np.testing.assert_allclose(alone[name].value, point.value, rtol=0, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(alone[name].grad, point.grad, rtol=0, atol=1e-12, err_msg=name)
        with patch(model, {name: point.value + random(*point.value.shape, seed=8)}):
            assert np.abs(model(**options).data - together[""].value).max() > 1e-3, name


def test_weights_that_are_asked_for_pass_the_same_points():
    model = Fed(layer_of(2))
    loss = lambda: scalar(model(need_weights=True)[1])  # noqa: E731
    caught, seen = assert_gradients_are_slopes(model, loss, ["*.q", "*.k", "*.scores", "*.attn"])
    assert seen == 4
    np.testing.assert_array_equal(caught["layer.attn"].value, model(need_weights=True)[1].data)


@pytest.mark.parametrize("heads", [1, 2])
def test_values_are_the_lectures_numbers(heads):
    layer, x = layer_of(heads), random(BATCH, N, DIM)
    mask = causal_mask(N)
    with capture(layer, POINTS) as caught:
        layer(x, mask=mask)
    width = DIM // heads
    np.testing.assert_array_equal(caught["x"].value, x)
    for b in range(BATCH):
        outputs = []
        for h in range(heads):
            columns = slice(h * width, (h + 1) * width)
            q, k, v = (x[b] @ w.weight.data[:, columns] for w in (layer.query, layer.key, layer.value))
            alpha = q @ k.T / np.sqrt(width)
            exponentials = np.where(mask, np.exp(alpha), 0)
            alpha_prime = exponentials / exponentials.sum(1, keepdims=True)
            outputs.append(alpha_prime @ v)
            for name, wanted in {"q": q, "k": k, "v": v, "alpha": alpha, "alpha_prime": alpha_prime}.items():
                np.testing.assert_allclose(caught[name].value[b, h], wanted, rtol=0, atol=1e-13, err_msg=name)
        out = np.concatenate(outputs, 1)
        out = out if heads == 1 else out @ layer.output.weight.data
        np.testing.assert_allclose(caught["b"].value[b], out, rtol=0, atol=1e-13)
    assert [caught[name].value.shape for name in POINTS] == [
        (BATCH, N, DIM),
        *[(BATCH, heads, N, width)] * 3,
        *[(BATCH, heads, N, N)] * 2,
        (BATCH, N, DIM),
    ]


def test_gradients_are_what_tensors_retain_by_themselves():
    layer, x = layer_of(), mg.tensor(random(BATCH, N, DIM), requires_grad=True)
    with capture(layer, POINTS) as caught:
        scalar(layer(x, mask=causal_mask(N))).backward()
    q, k, v = (mg.tensor(caught[name].value[:, 0], requires_grad=True) for name in "qkv")
    scores = q @ k.mT / np.sqrt(DIM)
    attn = mg.softmax(mg.where(causal_mask(N), scores, -np.inf))
    out = attn @ v
    for t in (scores, attn, out):
        t.retain_grad()
    scalar(out).backward()
    for name, t in {"q": q, "k": k, "v": v, "scores": scores, "attn": attn}.items():
        np.testing.assert_allclose(caught[name].grad[:, 0], t.grad, rtol=0, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(caught["out"].grad, out.grad, rtol=0, atol=1e-12)
    np.testing.assert_allclose(caught["x"].grad, x.grad, rtol=0, atol=1e-12)


def test_the_gradient_of_the_scores_sums_to_zero_over_the_keys_of_each_query():
    layer = layer_of(2)
    with capture(layer, "scores") as caught:
        scalar(layer(random(BATCH, N, DIM), **options_of(causal=True, padded=True))).backward()
    np.testing.assert_allclose(caught["scores"].grad.sum(-1), 0, atol=1e-13)
    assert np.abs(caught["scores"].grad).max() > 1e-3


def test_padding_gets_a_gradient_of_exactly_zero():
    layer, x = layer_of(2), mg.tensor(random(BATCH, N, DIM), requires_grad=True)
    valid = np.array([[True, True, False, False], [True, True, True, True]])
    with capture(layer, POINTS) as caught:
        output = layer(x, valid=valid)
        scalar(mg.where(valid[..., None], output, 0.0)).backward()
    for name in "kv":
        assert not caught[name].grad[0, :, 2:].any()
        assert caught[name].grad[0, :, :2].all()
    for name in ("scores", "attn"):
        assert not caught[name].grad[0, :, 2:].any()  # as queries: nobody reads what they say
    assert not caught["scores"].grad[0, :, :, 2:].any()  # as keys
    assert not caught["attn"].value[0, :, :, 2:].any()
    assert not caught["x"].grad[0, 2:].any()
    assert not x.grad[0, 2:].any()


def test_nan_in_the_padding_stays_out_of_what_is_captured():
    layer, x = layer_of(2), random(BATCH, N, DIM)
    x[0, 2:] = np.nan
    valid = np.array([[True, True, False, False], [True, True, True, True]])
    with capture(layer, POINTS) as caught:
        scalar(layer(x, valid=valid)).backward()
    for name in POINTS:
        assert np.isfinite(caught[name].value).all()
    for name in POINTS[1:]:
        assert np.isfinite(caught[name].grad).all()


# --- whole models ------------------------------------------------------------------------------------------------


def test_every_gradient_of_an_encoder_and_decoder_is_a_slope():
    model = Seq2Seq(7, 8, DIM, blocks=1, heads=2, rng=np.random.default_rng(1), dtype=np.float64)
    source, target = np.array([[1, 2, 3], [4, 5, 0]]), np.array([[1, 2, 3, 4], [1, 6, 0, 0]])
    options = {"source_valid": source > 0, "target_valid": target > 0}
    loss = lambda: scalar(model(source, target, **options))  # noqa: E731
    caught, seen = assert_gradients_are_slopes(model, loss)
    assert all(point.calls for point in caught.values())
    assert seen == sum(len(point.calls) == 1 for point in caught.values()) == 60
    assert caught["decoder.blocks.0.cross.attn"].grad.shape == (2, 2, 4, 3)
    assert caught["decoder.blocks.0.attention.attn"].value.shape == (2, 2, 4, 4)
    assert caught["encoder.blocks.0.attention.attn"].value.shape == (2, 2, 3, 3)
    assert not caught["decoder.blocks.0.cross.attn"].value[1, :, :, 2].any()  # the padding of the source
    assert not np.triu(caught["decoder.blocks.0.attention.attn"].value, 1).any()  # causal


@pytest.mark.parametrize("head", [PerVector, Single])
@pytest.mark.parametrize("form", [{}, {"residual": False, "norm": False}], ids=["residual", "bare"])
def test_every_gradient_of_a_labeller_is_a_slope(head, form):
    rng = np.random.default_rng(1)
    inputs = SummedEmbedding(9, DIM, features=2, rng=rng, dtype=np.float64)
    model = head(inputs, stack_of(positions="relative", **form), DIM, 3, rng=rng, dtype=np.float64)
    ids = np.array([[[1, 2], [3, 4], [5, 0]], [[6, 7], [8, 0], [0, 0]]])
    valid = np.array([[True, True, True], [True, True, False]])
    caught, seen = assert_gradients_are_slopes(model, lambda: scalar(model(ids, valid=valid)))
    assert all(point.calls for point in caught.values())
    assert seen == sum(len(point.calls) == 1 for point in caught.values()) > 40


def test_a_residual_stream_has_one_gradient_for_each_way_through_it():
    """Of x + f(x): what passes f's point x is one way, the rest goes past it."""
    stack = stack_of(blocks=1, norm=False)
    x = mg.tensor(random(BATCH, N, DIM), requires_grad=True)
    with capture(stack, ["*.attention.x", "*.attention.out", "blocks.0.fc", "blocks.0"]) as caught:
        scalar(stack(x)).backward()
    through, past = caught["blocks.0.attention.x"].grad, caught["blocks.0.attention.out"].grad
    np.testing.assert_allclose(x.grad, through + past, rtol=0, atol=1e-12)
    assert np.abs(through).max() > 1e-3
    np.testing.assert_array_equal(caught["blocks.0.fc"].grad, caught["blocks.0"].grad)


def test_watching_changes_no_value_and_no_gradient():
    x, labels = random(BATCH, N, DIM).astype(np.float32), np.array([[0, 1, 2, 3], [3, 2, 1, 0]])

    def run(watched):
        model = AttentionStack(DIM, blocks=2, heads=2, dropout=0.3, positions="relative", rng=np.random.default_rng(1))
        mg.seed(4)
        with capture(model, watched) if watched else contextlib.nullcontext():
            output = model(x, mask=causal_mask(N))
        loss = nn.cross_entropy(output, labels)
        loss.backward()
        return output.data, {name: p.grad for name, p in model.named_parameters()}

    output, gradients = run(None)
    at_the_edges = ["*.x", "*.out", "*.fc*", "*.attention", "norm", ""]  # for these no other path is taken
    for watched, tolerance in [("*", 1e-6), (["*.q", "*.k", "*.v"], 1e-6), ("*.query", 1e-6), (at_the_edges, 0)]:
        again, others = run(watched)
        assert again.dtype == output.dtype
        np.testing.assert_allclose(again, output, rtol=0, atol=tolerance)
        for name in gradients:
            np.testing.assert_allclose(others[name], gradients[name], rtol=0, atol=tolerance, err_msg=name)


def test_models_in_eval_mode_and_under_no_grad_are_captured():
    stack = stack_of(dropout=0.5).eval()
    x = random(BATCH, N, DIM)
    with mg.no_grad(), capture(stack, "*") as caught:
        stack(x)
    assert caught["blocks.1.attention.attn"].value.shape == (BATCH, 2, N, N)
    assert {call.reason for point in caught.values() for call in point.calls} == {"it was computed under no_grad"}
    with capture(stack) as again:
        stack(x).sum().backward()
    assert again["blocks.1.attention.attn"].grad.shape == (BATCH, 2, N, N)


def test_decoding_passes_a_point_once_a_step():
    model = Seq2Seq(7, 8, DIM, blocks=1, heads=2, rng=np.random.default_rng(1), dtype=np.float64)
    source, target = np.array([[1, 2, 3]]), np.array([[1, 4, 5]])
    names = [f"decoder.*.{point}" for point in POINTS]
    with capture(model, names) as caught:
        step = model.decoding(source, source > 0)
        for n in range(1, 4):
            step(target[:, :n])
    with capture(model, names) as at_once:
        model(source, target, source_valid=source > 0, target_valid=target > 0)
    for name, point in caught.items():
        whole = at_once[name].value
        if name.endswith((".cross.k", ".cross.v")):  # what the source answers, once
            np.testing.assert_allclose(point.value, whole, rtol=0, atol=1e-12, err_msg=name)
            continue
        assert len(point.calls) == 3
        for n, call in enumerate(point.calls):
            one = whole[..., n : n + 1, : call.value.shape[-1]]
            np.testing.assert_allclose(call.value, one, rtol=0, atol=1e-12, err_msg=name)
        with pytest.raises(ValueError, match=r"passed 3 times.*calls"):
            _ = caught["decoder.blocks.0.attention.attn"].value


# --- names -------------------------------------------------------------------------------------------------------


class Inner(nn.Module):
    hook_points = ("twice", "square")
    hook_aliases = {"double": "twice"}  # noqa: RUF012

    def forward(self, x):
        return self.tap("square", self.tap("twice", x * 2) ** 2)


class Outer(nn.Module):
    def __init__(self):
        self.parts = [Inner(), Inner()]
        self.linear = nn.Linear(2, 2, rng=np.random.default_rng(0), dtype=np.float64)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return self.linear(x)


def test_points_are_modules_and_their_hook_points_in_order():
    assert points(Outer()) == [
        "", "parts.0", "parts.0.twice", "parts.0.square", "parts.1", "parts.1.twice", "parts.1.square", "linear",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ("*.twice", ["parts.0.twice", "parts.1.twice"]),
        ("*.double", ["parts.0.twice", "parts.1.twice"]),
        (["linear", "parts.[1].*"], ["parts.1.twice", "parts.1.square", "linear"]),
        ("parts.?", ["parts.0", "parts.1"]),
        ("", [""]),
        (["*.twice", "parts.0.double"], ["parts.0.twice", "parts.1.twice"]),
        ("*.linear", ["linear"]),
        ([], []),
    ],
)
def test_names_may_be_patterns_and_aliases(names, wanted):
    assert points(Outer(), names) == wanted


@pytest.mark.parametrize("use", [points, capture, stop_gradient, lambda model, name: patch(model, {name: 0.0})])
@pytest.mark.parametrize(
    ("name", "nearest"),
    [("parts.0.twise", "'parts.0.twice'"), ("part.1", "'parts.1'"), ("lin", "'linear'"), ("body.blocks.twice", "twice"),
     ("*.attn", "points"), ("Linear", "'linear'"), ("zzz", "lists all")],
)  # fmt: skip
def test_an_unknown_name_is_an_error_with_the_nearest_ones(use, name, nearest):
    with pytest.raises(KeyError) as info:
        use(Outer(), name)
    assert nearest in str(info.value)
    assert "Outer has no point" in str(info.value)


def test_what_is_not_captured_is_an_error_that_says_what_is():
    model = Outer()
    with capture(model, "parts.0.*") as caught:
        pass
    assert list(caught) == ["parts.0.twice", "parts.0.square"]
    assert len(caught) == 2
    assert "parts.0.double" in caught
    assert "linear" not in caught
    with pytest.raises(KeyError, match=r"'linear' is not captured, only 'parts\.0\.twice'"):
        caught["linear"]
    with pytest.raises(KeyError, match=r"no point 'parts\.0\.cube'"):
        caught["parts.0.cube"]


def test_two_points_of_one_name_are_an_error():
    class Clash(nn.Module):
        hook_points = ("attn",)

        def __init__(self):
            self.attn = nn.Linear(1, 1)

    with pytest.raises(ValueError, match="two points called 'attn'"):
        points(Clash())


def test_a_name_with_the_characters_of_patterns_is_found_as_it_is():
    model = nn.Sequential()
    model.layers = {"a[0]": nn.Linear(2, 2, rng=np.random.default_rng(0))}
    assert points(model, "layers.a[0]") == ["layers.a[0]"]


# --- several calls, and none -------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """One module, passed several times."""

    hook_points = ("state",)

    def __init__(self):
        self.cell = nn.Linear(2, 2, rng=np.random.default_rng(0), dtype=np.float64)
        self.unused = nn.Linear(2, 2, rng=np.random.default_rng(0), dtype=np.float64)

    def forward(self, x, steps=3):
        for _ in range(steps):
            x = self.tap("state", mg.tanh(self.cell(x)))
        return x


def test_every_call_of_a_point_is_kept_with_its_own_gradient():
    model, x = Recurrent(), random(1, 2)
    with capture(model, ["cell", "state"]) as caught:
        model(x).sum().backward()
    values, h = [], x
    for _ in range(3):
        h = np.tanh(h @ model.cell.weight.data)
        values.append(h)
    g = np.ones((1, 2))
    for call, cell, value in reversed(list(zip(caught["state"].calls, caught["cell"].calls, values))):
        np.testing.assert_allclose(call.value, value, rtol=1e-14)
        np.testing.assert_allclose(call.grad, g, rtol=1e-13)
        np.testing.assert_allclose(cell.grad, g * (1 - value**2), rtol=1e-13)
        g = (g * (1 - value**2)) @ model.cell.weight.data.T
    for attribute in ("value", "grad", "reason"):
        with pytest.raises(ValueError, match=r"'state' was passed 3 times: take one of \.calls"):
            getattr(caught["state"], attribute)


def test_clear_forgets_what_was_captured_before():
    model, x = Recurrent(), random(1, 2)
    with capture(model, "state") as caught:
        model(x, steps=2)
        caught.clear()
        assert caught["state"].calls == []
        model(x, steps=1).sum().backward()
    assert caught["state"].grad.shape == (1, 2)


def test_a_tied_module_has_one_point_with_several_calls():
    layer = nn.Linear(2, 2, rng=np.random.default_rng(0), dtype=np.float64)
    model = nn.Sequential(layer, mg.tanh, layer)
    with capture(model, "layers.*") as caught:
        model(random(1, 2)).sum().backward()
    assert list(caught) == ["layers.0"]
    assert len(caught["layers.0"].calls) == 2
    np.testing.assert_array_equal(caught["layers.0"].calls[1].grad, np.ones((1, 2)))


# --- no gradient is None, with a reason --------------------------------------------------------------------------


def test_before_backward_there_is_no_gradient():
    model = Recurrent()
    with capture(model, "state") as caught:
        loss = model(random(1, 2), steps=1).sum()
        assert caught["state"].grad is None
        assert "backward was not run" in caught["state"].reason
    assert "backward was not run" in caught["state"].reason
    loss.backward()  # after the block is soon enough
    assert caught["state"].reason is None
    np.testing.assert_array_equal(caught["state"].grad, np.ones((1, 2)))


def test_what_the_loss_does_not_depend_on_has_no_gradient_rather_than_zero():
    model = layer_of()
    x = random(BATCH, N, DIM)
    with capture(model, ["attn", "v", "value"]) as caught:
        output, weights = model(x, need_weights=True)
        weights[0, 0, 0, 0].backward()
    assert caught["attn"].grad is not None
    assert caught["v"].grad is None
    assert caught["v"].reason == "no path leads here from what backward was run on"
    assert caught["value"].reason == caught["v"].reason
    assert output.requires_grad


def test_the_gradient_of_one_run_says_nothing_about_another():
    model = Recurrent()
    with capture(model, "state") as caught:
        model(random(1, 2), steps=1).sum().backward()
        model(random(1, 2), steps=1)
    assert caught["state"].calls[0].reason is None
    assert "backward was not run" in caught["state"].calls[1].reason
    layer, x = layer_of(), random(BATCH, N, DIM)
    with capture(layer, "v") as caught:
        layer(x, need_weights=True)[1][0, 0, 0, 0].backward()
        layer(x)
    assert [call.reason for call in caught["v"].calls] == [
        "no path leads here from what backward was run on",
        "backward was not run on anything computed from the model's output",
    ]


def test_reasons_of_points_that_were_not_passed_or_have_no_history():
    model = Outer()
    with capture(model, ["parts.0", "linear"]) as caught:
        pass
    assert caught["linear"].value is None
    assert caught["linear"].grad is None
    assert caught["linear"].reason == "the forward pass did not come by here"
    with capture(model, ["parts.0", "linear"]) as caught:
        model(np.ones((1, 2))).sum().backward()
    assert caught["parts.0"].reason == "nothing that it was computed from requires a gradient"
    assert caught["linear"].reason is None
    with capture(model, "linear", grad=False) as caught:
        model(np.ones((1, 2))).sum().backward()
    assert caught["linear"].grad is None
    assert caught["linear"].reason == "it was captured with grad=False"


def test_a_part_of_the_model_that_is_called_by_itself():
    model = Outer()
    with capture(model, "linear") as caught:
        output = model.linear(np.ones((1, 2)))
        assert "backward was not run, or no path" in caught["linear"].reason
        output.sum().backward()
    np.testing.assert_array_equal(caught["linear"].grad, np.ones((1, 2)))


def test_a_module_that_returns_no_tensor():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x.numpy()

    model = nn.Sequential(Pair())
    x = mg.tensor([1.0], requires_grad=True)
    with capture(model, "layers.0") as caught:
        model(x)[0].backward()
    assert caught["layers.0"].value is None
    assert caught["layers.0"].reason == "it is no tensor but of type tuple"
    assert x.grad == 1
    with patch(model, {"layers.0": np.ones(1)}), pytest.raises(TypeError, match=r"'layers\.0' is no tensor"):
        model(x)


def test_gradients_of_several_backward_passes_add_up():
    model = Recurrent()
    with capture(model, "state") as caught:
        loss = model(random(1, 2), steps=1).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    np.testing.assert_array_equal(caught["state"].grad, np.full((1, 2), 2.0))


def test_a_backward_pass_that_fails_leaves_no_gradient():
    @mg.op
    def fragile(x):
        return x * 1.0

    def fail(g):
        raise FloatingPointError

    fragile.rule(x=fail)
    model = nn.Sequential(fragile, nn.Linear(2, 2, rng=np.random.default_rng(0)))
    x = mg.tensor(np.ones((1, 2), np.float32), requires_grad=True)
    with capture(model, "layers.1") as caught:
        loss = model(x).sum()
    with pytest.raises(FloatingPointError):
        loss.backward()
    assert caught["layers.1"].grad is None


# --- copies ------------------------------------------------------------------------------------------------------


def test_values_and_gradients_are_copies():
    model, x = Outer(), mg.tensor(np.ones((1, 2)), requires_grad=True)
    with capture(model, ["parts.0.twice", "linear"]) as caught:
        output = model(x)
        caught["parts.0.twice"].value[...] = 99
        caught["linear"].value[...] = 99
        wanted = model(x).data
        np.testing.assert_array_equal(output.data, wanted)
        output.sum().backward()
    one = caught["parts.0.twice"].calls[0]
    np.testing.assert_allclose(one.grad, 128 * model.linear.weight.data.sum(1)[None])  # (2 (2 x)^2)^2 = 4 t^4; 16 t^3
    before = x.grad.copy()
    one.grad[...] = 99
    np.testing.assert_array_equal(x.grad, before)


def test_what_is_captured_does_not_hold_the_graph_or_the_model():
    def run():
        model = Recurrent()
        with capture(model, "*") as caught:
            loss = model(random(1, 2)).sum()
        return caught["state"].calls, weakref.ref(model), weakref.ref(loss._node)

    gc.collect()
    gc.disable()
    try:
        kept, model, node = run()
        assert len(kept) == 3
        assert model() is None
        assert node() is None
    finally:
        gc.enable()


# --- contexts ----------------------------------------------------------------------------------------------------


def hooked(model):
    return [path for path, module in model.named_modules() if module._hooks is not None]


def test_captures_nest_and_leave_only_their_own_hooks():
    model, x = Outer(), mg.tensor(np.ones((1, 2)), requires_grad=True)
    heard = []
    handle = model.linear.register_forward_hook(lambda *a: heard.append(1))
    with capture(model, ["linear", "parts.0.twice"]) as outer:
        with capture(model, ["linear", "parts.1.twice"]) as inner:
            model(x).sum().backward()
        model(x).sum().backward()
    assert len(outer["linear"].calls) == 2
    assert len(inner["linear"].calls) == 1
    np.testing.assert_array_equal(outer["linear"].calls[0].grad, inner["linear"].grad)
    model(x)
    assert len(heard) == 3
    assert hooked(model) == ["linear"]
    handle.remove()
    assert hooked(model) == []


def test_an_exception_in_the_block_cleans_up():
    model = Outer()
    for context in (capture(model, "*"), patch(model, {"linear": np.zeros((1, 2))}), stop_gradient(model, "*.twice")):
        with pytest.raises(ZeroDivisionError), context:
            raise ZeroDivisionError
        assert hooked(model) == []
    with capture(model, "*") as caught:
        with pytest.raises(ValueError, match="linear"):
            model(np.ones((1, 3)))
        model(mg.tensor(np.ones((1, 2)), requires_grad=True)).sum().backward()
    assert caught["linear"].reason is None


def test_one_context_is_entered_once_at_a_time():
    model = Outer()
    caught = capture(model, "linear")
    with caught:
        with pytest.raises(RuntimeError, match="entered already"), caught:
            pass
        model(np.ones((1, 2)))
    with caught:
        model(np.ones((1, 2)))
    assert len(caught["linear"].calls) == 2


def test_unwatched_runs_take_the_fused_path_bit_for_bit():
    stack, x = stack_of(dropout=0.2).eval(), random(BATCH, N, DIM)

    def run():
        with recording():
            output = stack(x, mask=causal_mask(N))
        names = {str(node.op) for node in calls(output)}
        output.sum().backward()
        gradients = [p.grad for p in stack.parameters()]
        for p in stack.parameters():
            p.grad = None
        return output.data, gradients, names

    before, gradients, fused = run()
    assert "softmax" not in fused
    with capture(stack, "*.attn"), patch(stack, {"*.v": lambda v: v * 2}), stop_gradient(stack, "*.q"):
        _, _, plain = run()
        assert "softmax" in plain
    with capture(stack, ["*.out", "*.fc", "*.query"]):
        values, _, watched = run()
        assert "softmax" not in watched
        np.testing.assert_allclose(values, before, rtol=0, atol=1e-13)
    again, others, names = run()
    assert names == fused
    np.testing.assert_array_equal(again, before)
    for g, other in zip(gradients, others):
        np.testing.assert_array_equal(g, other)


def test_without_gradients_the_graph_is_as_it_was():
    model, x = Recurrent(), random(1, 2)

    def nodes(output):
        found, stack = set(), [output._node]
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack += node.edges
        return len(found)

    plain = nodes(model(x))
    with capture(model, "*", grad=False):
        assert nodes(model(x)) == plain
    with capture(model, "*"):
        assert nodes(model(x)) > plain


def test_a_copy_of_a_watched_model_is_not_watched():
    model = Outer()
    with capture(model, "*") as caught:
        twin = copy.deepcopy(model)
        assert hooked(twin) == []
        twin(np.ones((1, 2)))
    assert caught["linear"].calls == []


def test_each_thread_sees_what_it_computes_itself():
    stack, errors = stack_of(), []
    barrier = threading.Barrier(4)

    def work(seed):
        try:
            x = random(BATCH, N, DIM, seed=seed)
            alone = stack(x).data
            for _ in range(5):
                barrier.wait()
                with capture(stack, ["*.attn", ""]) as caught, patch(stack, {"blocks.0.fc": lambda y: y * seed}):
                    output = stack(x)
                    scalar(output).backward()
                barrier.wait()
                point = caught["blocks.1.attention.attn"]
                assert len(point.calls) == 1
                assert point.grad.any()
                np.testing.assert_array_equal(caught[""].value, output.data)
                if seed == 1:  # whose patch changes nothing
                    np.testing.assert_allclose(output.data, alone, rtol=0, atol=1e-13)
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert hooked(stack) == []


# --- transforms --------------------------------------------------------------------------------------------------


def test_transforms_go_through_watched_points():
    model = Outer()
    f = lambda x: model(x[None]).sum()  # noqa: E731
    x = random(2)
    gradient, hessian = mg.grad(f)(x), mg.hessian(f)(x)
    with capture(model, "*") as caught:
        np.testing.assert_allclose(mg.grad(f)(x), gradient, rtol=1e-13)
        np.testing.assert_allclose(4 * caught["parts.0.square"].grad[0] * 2 * x, gradient, rtol=1e-13)
        np.testing.assert_allclose(mg.hessian(f)(x), hessian, rtol=1e-13)
    with patch(model, {"*.twice": lambda t: t}):
        np.testing.assert_allclose(mg.hessian(f)(x), hessian, rtol=1e-13)


def test_a_checkpointed_part_is_passed_again_in_backward():
    model = Recurrent()
    x = mg.tensor(random(1, 2), requires_grad=True)
    with capture(model, "state") as caught:
        mg.checkpoint(model)(x, steps=1).sum().backward()
    first, again = caught["state"].calls
    np.testing.assert_array_equal(first.value, again.value)
    assert first.grad is None
    np.testing.assert_array_equal(again.grad, np.ones((1, 2)))


def test_a_compiled_loss_is_watched_and_patched_as_any_other():
    stack, x = stack_of(), random(BATCH, N, DIM)
    loss = mg.compile(lambda x: scalar(stack(x)))
    wanted = [loss(x).item() for _ in range(3)][-1]
    with capture(stack, "*.attn") as caught:
        assert abs(loss(x).item() - wanted) <= 1e-12 * abs(wanted)
    assert all(point.grad.any() for point in caught.values())
    with patch(stack, {"*.attn": lambda attn: attn * 0}):
        without = loss(x).item()
    assert abs(without - wanted) > 1e-3
    assert loss(x).item() == wanted


# --- patch -------------------------------------------------------------------------------------------------------


def test_attending_evenly_averages_the_values():
    layer, x = layer_of(2), random(BATCH, N, DIM)
    with patch(layer, {"alpha_prime": np.full((BATCH, 2, N, N), 1 / N)}), capture(layer, ["v", "attn"]) as caught:
        output = layer(x)
    mean = caught["v"].value.mean(2, keepdims=True)  # (batch, heads, 1, width)
    joined = np.repeat(mean.transpose(0, 2, 1, 3).reshape(BATCH, 1, DIM), N, 1)
    np.testing.assert_allclose(output.data, joined @ layer.output.weight.data, rtol=0, atol=1e-13)
    assert caught["attn"].reason == "nothing that it was computed from requires a gradient"


def test_a_patch_with_the_value_itself_changes_nothing():
    stack, x = stack_of(), random(BATCH, N, DIM)
    with capture(stack, "*") as caught:
        wanted = stack(x).data
    values = {name: point.value for name, point in caught.items() if len(point.calls) == 1}
    assert len(values) > 20
    for name, value in values.items():
        with patch(stack, {name: value}):
            np.testing.assert_allclose(stack(x).data, wanted, rtol=0, atol=1e-13, err_msg=name)


def test_an_array_is_a_constant_and_a_tensor_gets_its_gradient():
    model, x = Outer(), mg.tensor(np.ones((1, 2)), requires_grad=True)
    with patch(model, {"parts.1": np.ones((1, 2))}):
        model(x).sum().backward()
    assert x.grad is None
    given = mg.tensor(np.ones((1, 2)), requires_grad=True)
    with patch(model, {"parts.1": given}):
        model(x).sum().backward()
    np.testing.assert_allclose(given.grad, model.linear.weight.data.sum(1)[None])
    with patch(model, {"parts.1": lambda t: t * 3}):
        model(x).sum().backward()
    thrice = x.grad
    x.grad = None
    model(x).sum().backward()
    np.testing.assert_allclose(thrice, 3 * x.grad)


def test_patches_of_one_point_compose_in_order_and_captures_see_what_is_before_them():
    model, x = Outer(), np.ones((1, 2))
    plus, times = {"parts.0.twice": lambda t: t + 1}, {"parts.*.double": lambda t: t * 10}
    with capture(model, "parts.0.twice") as first, patch(model, plus), capture(model, "parts.0.twice") as between:
        with patch(model, times), capture(model, ["parts.0.twice", "parts.0"]) as last:
            model(x)
        model(x)
    with patch(model, times), patch(model, plus), capture(model, "parts.0.twice") as other:
        model(x)
    assert [point.value[0, 0] for point in (last["parts.0.twice"], other["parts.0.twice"])] == [30, 21]
    assert [call.value[0, 0] for call in first["parts.0.twice"].calls] == [2, 2]
    assert [call.value[0, 0] for call in between["parts.0.twice"].calls] == [3, 3]
    assert last["parts.0"].value[0, 0] == 900


@pytest.mark.parametrize("replacement", [np.ones((2, 1)), 0.0, np.ones(2), lambda t: t[0], lambda t: np.ones((2, 2))])
def test_a_patch_of_another_shape_is_an_error_that_names_the_point(replacement):
    model = Outer()
    with patch(model, {"parts.1.double": replacement}), pytest.raises(ValueError, match=r"'parts\.1\.twice'.*\(1, 2\)"):
        model(np.ones((1, 2)))


def test_a_patch_takes_on_the_dtype_of_what_it_replaces():
    layer = SelfAttention(4, rng=np.random.default_rng(0))
    x = random(1, 3, 4).astype(np.float32)
    even = np.full((1, 1, 3, 3), 1 / 3)
    for given in (even, even.tolist(), mg.tensor(even), lambda t: even):
        with patch(layer, {"attn": given}):
            assert layer(x).dtype == np.float32
    tracked = mg.tensor(even, requires_grad=True)
    with patch(layer, {"attn": tracked}), pytest.raises(TypeError, match=r"'attn' is of dtype float64.*float32"):
        layer(x)


def test_what_is_patched_later_may_change_the_array():
    """The value at the time of the call counts, and it is the caller's."""
    model, given = Outer(), np.ones((1, 2))
    with patch(model, {"linear": given}):
        output = model(np.ones((1, 2)))
        given[...] = 5
        np.testing.assert_array_equal(output.data, [[1, 1]])
        np.testing.assert_array_equal(model(np.ones((1, 2))).data, [[5, 5]])


# --- stop_gradient -----------------------------------------------------------------------------------------------


def test_attention_with_its_weights_detached():
    layer, x = layer_of(), mg.tensor(random(BATCH, N, DIM), requires_grad=True)
    with stop_gradient(layer, "alpha_prime"), capture(layer, ["attn", "v"]) as caught:
        output = layer(x)
        output.sum().backward()
    np.testing.assert_allclose(output.data, layer(x).data, rtol=0, atol=1e-13)
    assert layer.query.weight.grad is None
    assert layer.key.weight.grad is None
    by_values = caught["attn"].value[:, 0].transpose(0, 2, 1) @ np.ones((BATCH, N, DIM)) @ layer.value.weight.data.T
    np.testing.assert_allclose(x.grad, by_values, rtol=0, atol=1e-12)
    assert caught["attn"].reason == "nothing that it was computed from requires a gradient"


def test_a_detached_path_beside_the_residual():
    stack, x = stack_of(norm=False), mg.tensor(random(BATCH, N, DIM), requires_grad=True)
    with stop_gradient(stack, ["*.attention.out", "*.fc"]):
        stack(x).sum().backward()
    np.testing.assert_array_equal(x.grad, np.ones((BATCH, N, DIM)))  # only past the blocks
    assert all(p.grad is None for p in stack.parameters())


# --- fully connected layers, without hook points of their own ----------------------------------------------------


def test_a_stack_of_fc_layers():
    model = FCStack((3, 4, 2), activation="tanh", rng=np.random.default_rng(0), dtype=np.float64)
    x = random(5, 3)
    with capture(model, "layers.*") as caught:
        scalar(model(x)).backward()
    hidden = x @ model.layers[0].weight.data + model.layers[0].bias.data
    np.testing.assert_allclose(caught["layers.0"].value, hidden, rtol=1e-13)
    np.testing.assert_allclose(
        caught["layers.0"].grad,
        caught["layers.1"].grad @ model.layers[1].weight.data.T * (1 - np.tanh(hidden) ** 2),
        rtol=1e-12,
    )
