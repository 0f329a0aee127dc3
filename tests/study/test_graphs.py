"""study.graph: the nodes, edges and numbers of a recorded computation, and collapsing them by module."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.study import graph, recording
from minigrad.study.parts import numbers
from models import AttentionStack, Seq2Seq


def leaf(*shape, seed=0, dtype=float):
    return mg.tensor(np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype), requires_grad=True)


class Twice(nn.Module):
    """One layer that is called twice, with an op of its own between the calls."""

    def __init__(self):
        self.layer = nn.Linear(3, 3)
        self.last = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))

    def forward(self, x):
        return self.last(self.layer(mg.tanh(self.layer(x))))


def recorded(model, *args, **kwargs):
    with recording():
        return (model(*args, **kwargs) ** 2).mean()


def stack_loss(backward=True):
    rng = np.random.default_rng(0)
    model = AttentionStack(8, blocks=2, heads=2, positions="learned", max_length=9, rng=rng, dtype=float)
    valid = np.array([[True] * 5, [True] * 3 + [False] * 2])
    loss = recorded(model, rng.standard_normal((2, 5, 8)), valid=valid)
    if backward:
        loss.backward()
    return loss, model


def seq2seq_loss():
    rng = np.random.default_rng(1)
    model = Seq2Seq(7, 6, 8, heads=2, rng=rng)
    source, target = rng.integers(1, 7, (2, 4)), rng.integers(1, 6, (2, 3))
    with recording():
        logits = model(source, target, source_valid=source > 0, target_valid=target > 0)
        loss = nn.cross_entropy(logits, target)
    loss.backward()
    return loss, model


# --- structure ---------------------------------------------------------------------------------------------------


BINARY = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b, "maximum": mg.maximum}


@pytest.mark.parametrize("seed", range(6))
def test_nodes_and_edges_are_those_that_a_program_writes_down_as_it_runs(seed):
    rng = np.random.default_rng(seed)
    tensors = [leaf(3, seed=seed), leaf(3, seed=seed + 50)]
    log = [("leaf", ()), ("leaf", ())]  # what each value was made by, and of which values
    with recording():
        for _ in range(12):
            i, j = (int(k) for k in rng.integers(0, len(tensors), 2))
            if rng.random() < 0.3:
                tensors.append(mg.tanh(tensors[i]))
                log.append(("tanh", (i,)))
            else:
                name = str(rng.choice(list(BINARY)))
                tensors.append(BINARY[name](tensors[i], tensors[j]))
                log.append((name, (i, j)))
        loss = tensors[-1].sum()
    log.append(("sum", (len(tensors) - 1,)))
    needed, waiting = set(), [len(log) - 1]
    while waiting:
        k = waiting.pop()
        needed.add(k)
        waiting += log[k][1]
    order = []  # calls as they were made, each leaf right before it is first used
    for k in sorted(needed):
        order += [i for i in (*log[k][1], k) if i not in order and (log[i][0] == "leaf" or i == k) and log[k][1]]
    order = list(dict.fromkeys(order))
    expected_nodes = [log[k][0] for k in order]
    place = {k: n for n, k in enumerate(order)}
    expected_edges = [(place[source], place[k]) for k in sorted(needed) for source in log[k][1]]

    seen = graph(loss)
    number = {node.id: n for n, node in enumerate(seen.nodes)}
    assert [node.op or node.kind for node in seen.nodes] == expected_nodes
    assert [(number[edge.source], number[edge.target]) for edge in seen.edges] == expected_edges
    assert [number[i] for i in seen.results] == [len(expected_nodes) - 1]


def test_edges_bear_the_names_of_arguments_and_constants_are_nodes():
    a, b = leaf(2, 3), np.ones((3, 2))
    with recording():
        y = mg.concatenate([a @ b, np.zeros((1, 2)), a[:, :2]], axis=0).sum()
    seen = graph(y)
    kind = {node.id: node.kind for node in seen.nodes}
    sources = [(edge.argument, kind[edge.source]) for edge in seen.edges]
    assert [source for source in sources if source[0] != "x"] == [
        ("a", "leaf"),
        ("b", "constant"),
        ("arrays[0]", "call"),
        ("arrays[1]", "constant"),
        ("arrays[2]", "call"),
    ]
    constants = [(node.shape, node.detail) for node in seen.nodes if node.kind == "constant"]
    assert constants == [((3, 2), "b of matmul"), ((1, 2), "arrays[1] of concatenate")]


def test_numbers_among_the_arguments_stand_in_the_calls_box():
    x = leaf(2, 3)
    with recording():
        y = (mg.sum(x * 2.5, axis=1, keepdims=True) + np.float64(1)).sum()
    details = {node.op: node.detail for node in graph(y).nodes if node.kind == "call"}
    assert details["multiply"] == "b=2.5"
    assert details["add"] == "b=1"
    assert [node.detail for node in graph(y).nodes if node.op == "sum"] == ["axis=1, keepdims=True", ""]


def test_one_constant_that_is_used_twice_is_one_node():
    x, c = leaf(3), np.arange(3.0)
    with recording():
        y = (x * c + c).sum()
    seen = graph(y)
    [constant] = [node for node in seen.nodes if node.kind == "constant"]
    assert sum(edge.source == constant.id for edge in seen.edges) == 2


def test_a_call_with_several_outputs_has_a_node_for_each_that_is_used():
    x = leaf(3, 3)
    with recording():
        _, s, vt = mg.linalg.svd(x)
        y = s.sum() + vt.sum()
    y.backward()
    outputs = [node for node in graph(y).nodes if node.kind == "output"]
    assert [node.shape for node in outputs] == [(3,), (3, 3)]
    assert [node.value.norm for node in outputs] == pytest.approx([np.linalg.norm(x.data), np.sqrt(3)])
    assert [node.gradient.norm for node in outputs] == pytest.approx([np.sqrt(3), 3])


def test_a_checkpointed_call_is_one_call():
    x = leaf(3)
    with recording():
        y = mg.checkpoint(lambda t: mg.exp(mg.sin(t)))(x).sum()
    assert [node.kind for node in graph(y).nodes] == ["leaf", "call", "output", "call"]
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        graph(y)


def test_several_results():
    x = leaf(3)
    with recording():
        a, b = mg.exp(x).sum(), mg.sin(x).sum()
    seen = graph([a, b])
    assert len(seen.results) == 2
    assert len(seen.nodes) == 5


def test_a_leaf_alone_is_a_graph():
    [node] = graph(leaf(2)).nodes
    assert (node.kind, node.shape) == ("leaf", (2,))


# --- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(), (7,), (2, 0), (3, 1, 4)])
def test_statistics_are_those_of_a_loop(dtype, shape):
    x = (np.random.default_rng(3).standard_normal(shape) * 3).astype(dtype)
    seen = numbers(x)
    values = [float(v) for v in x.ravel()]
    assert seen.size == len(values)
    assert seen.zeros == sum(v == 0 for v in values)
    if not values:
        assert seen.mean is seen.norm is seen.least is None
        return
    mean = sum(values) / len(values)
    assert seen.mean == pytest.approx(mean, rel=1e-6, abs=1e-12)
    assert seen.deviation == pytest.approx((sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5, rel=1e-6)
    assert seen.norm == pytest.approx(sum(v * v for v in values) ** 0.5, rel=1e-6)
    assert (seen.least, seen.most) == pytest.approx((min(values), max(values)), rel=1e-6)


def test_what_is_not_finite_is_counted_and_left_out():
    seen = numbers(np.array([np.nan, np.inf, -np.inf, 3.0, 0.0]))
    assert (seen.nan, seen.infinite, seen.zeros) == (1, 2, 1)
    assert (seen.mean, seen.most, seen.norm) == (1.5, 3, 3)
    nothing = numbers(np.full(3, np.nan))
    assert nothing.mean is None
    assert nothing.not_finite == 3


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_norms_neither_overflow_nor_vanish(scale):
    assert numbers(np.array([3.0, 4.0]) * scale).norm == pytest.approx(5 * scale)


def test_before_backward_no_gradient_is_told_not_even_one_left_from_before():
    w, x = leaf(4), leaf(4, seed=1)
    (w * 3.0).sum().backward()
    with recording():
        y = (w * x).sum()
    for node in graph(y).nodes:
        assert node.gradient is None
        assert node.gradient_state == "not computed"


def test_after_backward_each_node_tells_its_gradient():
    x, w = leaf(3, 2), leaf(2, seed=1)
    with recording():
        h = mg.exp(x)
        y = (h * w).sum()
    before = graph(y)
    y.backward()  # frees the graph
    after = graph(y)
    assert [(n.id, n.kind, n.op, n.value, n.place) for n in after.nodes] == [
        (n.id, n.kind, n.op, n.value, n.place) for n in before.nodes
    ]
    assert after.edges == before.edges
    exp = np.exp(x.data)
    expected = {
        "exp": np.broadcast_to(w.data, (3, 2)),  # y = sum of w h
        "multiply": np.ones((3, 2)),
        "sum": np.ones(()),
    }
    for node in after.nodes:
        if node.op:
            assert node.gradient.norm == pytest.approx(np.linalg.norm(expected[node.op]), rel=1e-6)
            assert node.gradient_state == "computed"
    leaves = {node.shape: node for node in after.nodes if node.kind == "leaf"}
    assert leaves[3, 2].gradient.norm == pytest.approx(np.linalg.norm(w.data * exp), rel=1e-6)
    assert leaves[2,].gradient.norm == pytest.approx(np.linalg.norm(exp.sum(0)), rel=1e-6)


def test_values_of_leaves_come_from_the_calls_that_use_them():
    x = leaf(5)
    with recording():
        y = mg.tanh(x).sum()
    node = next(n for n in graph(y).nodes if n.kind == "leaf")
    assert node.value == numbers(x.data)


def test_each_call_names_its_source_line():
    x = leaf(2)
    with recording():
        a = mg.exp(x)
        b = a.sum()
    here = inspect.currentframe().f_lineno
    places = [node.place for node in graph(b).nodes if node.kind == "call"]
    assert [int(place.rpartition(":")[2]) for place in places] == [here - 2, here - 1]
    assert all(place.rpartition(":")[0].endswith(Path(__file__).name) and not place.startswith("/") for place in places)


def test_not_finite_elements_are_counted_at_the_node_and_in_its_module():
    layer = nn.Linear(2, 1, dtype=float)
    loss = recorded(nn.Sequential(layer), np.array([[np.inf, 1.0]]))
    seen = graph(loss)
    assert next(node for node in seen.nodes if node.op == "linear").not_finite == 1
    [module] = [node for node in seen.by_module().nodes if node.kind == "module"]
    assert module.not_finite == 2  # the constant and the output


# --- errors ------------------------------------------------------------------------------------------------------


def test_a_graph_that_was_not_recorded_is_an_error_that_says_so():
    x = leaf(2)
    h = mg.exp(x)
    with recording():
        y = h.sum()
    with pytest.raises(RuntimeError, match=r"exp .*study\.recording"):
        graph(y)


@pytest.mark.parametrize("wrong", [mg.tensor(1.0), []])
def test_a_tensor_without_history_is_an_error(wrong):
    with pytest.raises(ValueError, match="requires_grad"):
        graph(wrong)


@pytest.mark.parametrize("wrong", [1.0, np.ones(2), [np.ones(2)], "loss"])
def test_what_is_no_tensor_is_an_error(wrong):
    with pytest.raises(TypeError, match="tensor"):
        graph(wrong)


# --- names and modules -------------------------------------------------------------------------------------------


def test_parameters_bear_their_names():
    for loss, model in (stack_loss(), seq2seq_loss()):
        seen = {n.name: n for n in graph(loss, model).nodes if n.kind == "parameter"}
        named = dict(model.named_parameters())
        assert seen.keys() == named.keys()
        for name, node in seen.items():
            assert node.shape == named[name].shape
            assert node.value == numbers(named[name].data)
            assert node.gradient == numbers(named[name].grad)


def test_a_model_names_what_its_part_has_computed():
    _, model = stack_loss(backward=False)
    with recording():
        loss = model.blocks[1].fc(np.ones((2, 8))).sum()
    seen = graph(loss, model)
    assert {node.module for node in seen.nodes if node.op == "linear"} == {
        "blocks.1.fc.layers.0",
        "blocks.1.fc.layers.1",
    }
    assert {n.name for n in seen.nodes if n.kind == "parameter"} == {
        name for name, _ in model.named_parameters() if name.startswith("blocks.1.fc.")
    }
    assert {node.module for node in graph(loss).nodes if node.op == "linear"} == {"layers.0", "layers.1"}


def test_a_model_names_parameters_that_are_used_without_it():
    layer = nn.Linear(2, 1, dtype=float)
    with recording():
        loss = (np.ones((3, 2)) @ layer.weight).sum()
    assert [n.name for n in graph(loss, layer).nodes if n.kind == "parameter"] == ["weight"]
    assert [n.kind for n in graph(loss).nodes if n.kind in ("leaf", "parameter")] == ["leaf"]


def test_each_call_knows_its_module():
    model = Twice()
    seen = graph(recorded(model, np.ones((4, 3), np.float32)), model)
    made = [(node.op, node.module) for node in seen.nodes if node.kind == "call"]
    assert made == [
        ("linear", "layer"),
        ("tanh", ""),
        ("linear", "layer"),
        ("linear", "last.layers.0"),
        ("layer_norm", "last.layers.1"),
        ("power", ""),
        ("mean", ""),
    ]


# --- collapsing --------------------------------------------------------------------------------------------------


def is_acyclic(seen):
    waiting = {node.id: {e.source for e in seen.edges if e.target == node.id} for node in seen.nodes}
    while ready := [i for i, sources in waiting.items() if not sources & waiting.keys()]:
        for i in ready:
            del waiting[i]
    return not waiting


def test_collapsing_by_module_merges_edges_and_counts_what_is_inside():
    model = Twice()
    seen = graph(recorded(model, np.ones((4, 3), np.float32)), model).by_module()
    boxes = [(node.kind, node.name or node.op or node.kind, node.detail) for node in seen.nodes]
    assert sorted(boxes) == sorted(
        [
            ("module", "layer", "1 call"),
            ("call", "tanh", ""),
            ("module", "layer", "1 call, time 2"),
            ("module", "last", "2 calls, 12 parameters"),
            ("call", "power", "b=2"),
            ("call", "mean", ""),
            ("parameter", "layer.weight", ""),
            ("parameter", "layer.bias", ""),
        ]
    )
    title = {node.id: node.name or node.op for node in seen.nodes}
    joined = sorted((title[e.source], title[e.target]) for e in seen.edges)
    assert joined == sorted(
        [
            ("layer", "tanh"),
            ("tanh", "layer"),
            ("layer", "last"),
            ("last", "power"),
            ("power", "mean"),
            *2 * [("layer.weight", "layer"), ("layer.bias", "layer")],
        ]
    )
    assert is_acyclic(seen)


@pytest.mark.parametrize("make", [stack_loss, seq2seq_loss])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 9])
def test_collapsing_is_a_quotient_of_the_graph(make, depth):
    loss, model = make()
    whole = graph(loss, model)
    seen = whole.by_module(depth)
    assert type(seen) is type(whole)
    assert is_acyclic(seen)
    ids = {node.id for node in seen.nodes}
    assert len(ids) == len(seen.nodes)
    assert all(e.source in ids and e.target in ids and e.source != e.target for e in seen.edges)
    assert len({(e.source, e.target) for e in seen.edges}) == len(seen.edges)
    assert sum(n.calls for n in seen.nodes) == sum(n.kind == "call" for n in whole.nodes)
    assert set(seen.results) <= ids
    paths = [node.name for node in seen.nodes if node.kind == "module"]
    modules = {name for name, _ in model.named_modules()}
    for path in paths:
        around = [m for m in modules if m and (path == m or path.startswith(m + "."))]
        assert len(around) <= depth
    left = {node.module for node in seen.nodes if node.kind == "call"}
    for path in left:  # a call is left alone only when its module holds others and is above the depth
        assert path == "" or any(m.startswith(path + ".") for m in modules)
    stays = {n.id for n in whole.nodes} & ids
    kept = {(e.source, e.target): e.count for e in seen.edges if e.source in stays and e.target in stays}
    direct = [(e.source, e.target) for e in whole.edges if e.source in stays and e.target in stays]
    assert kept == {pair: direct.count(pair) for pair in direct}


class Thrice(nn.Module):
    def forward(self, x):
        return mg.exp(x) * mg.sin(x) + x


def test_merged_edges_are_counted():
    x = leaf(2)
    with recording():
        loss = nn.Sequential(Thrice())(x).sum()
    assert [(edge.source, edge.count) for edge in graph(loss).by_module().edges] == [("n0", 3), ("m1", 1)]


def test_a_modules_box_shows_its_output():
    loss, model = stack_loss()
    whole = graph(loss, model)
    block = next(n for n in whole.by_module().nodes if n.name == "blocks.1")
    last = [n for n in whole.nodes if n.module == "blocks.1" and n.op == "add"][-1]
    assert (block.value, block.gradient, block.shape) == (last.value, last.gradient, last.shape)
    size = sum(p.size for name, p in model.named_parameters() if name.startswith("blocks.1."))
    calls = sum(n.kind == "call" and f"{n.module}.".startswith("blocks.1.") for n in whole.nodes)
    assert block.detail == f"{calls} calls, {size:,} parameters"


def test_tied_weights_stand_outside_of_the_modules_that_share_them():
    loss, model = seq2seq_loss()
    seen = graph(loss, model).by_module()
    assert [n.name for n in seen.nodes if n.kind == "parameter"] == ["target.weight"]


def test_the_inside_of_a_module_begins_and_ends_outside():
    loss, model = stack_loss()
    whole = graph(loss, model)
    seen = whole.inside("blocks.0")
    own = {n.id for n in whole.nodes if n.kind == "call" and f"{n.module}.".startswith("blocks.0.")}
    assert {n.id for n in seen.nodes if n.kind == "call"} == own
    outside = {n.id for n in seen.nodes if n.kind == "outside"}
    before = {e.source for e in whole.edges if e.target in own} - own
    after = {e.target for e in whole.edges if e.source in own} - own
    kinds = {n.id: n.kind for n in whole.nodes}
    assert outside == {i for i in before | after if kinds[i] == "call"}
    assert {(e.source, e.target) for e in seen.edges} == {
        (e.source, e.target) for e in whole.edges if e.source in own or e.target in own
    }
    deeper = seen.by_module(1)
    assert [n.name for n in deeper.nodes if n.kind == "module"] == [
        "blocks.0.norms.0",
        "blocks.0.attention",
        "blocks.0.norms.1",
        "blocks.0.fc",
    ]
    assert is_acyclic(deeper)


def test_errors_of_collapsing():
    loss, model = stack_loss()
    seen = graph(loss, model)
    with pytest.raises(ValueError, match="at least 1"):
        seen.by_module(0)
    with pytest.raises(KeyError, match=r"blocks\.0\.attention"):
        seen.inside("blocks.0.atention")
    with pytest.raises(KeyError, match="the nearest are"):
        seen.inside("blocks.0.attentio")


def test_without_modules_nothing_is_collapsed():
    x = leaf(2)
    with recording():
        y = mg.exp(x).sum()
    assert graph(y).by_module().nodes == graph(y).nodes


# --- JSON --------------------------------------------------------------------------------------------------------


def test_json_holds_everything_and_no_nan():
    loss, model = stack_loss()
    seen = graph(loss, model)
    data = json.loads(json.dumps(seen.to_json(), allow_nan=False))
    assert data["schema"] == "minigrad.graph/1"
    assert [(e["source"], e["target"]) for e in data["edges"]] == [(e.source, e.target) for e in seen.edges]
    for node, given in zip(seen.nodes, data["nodes"]):
        assert given["id"] == node.id
        assert tuple(given.get("shape", ())) == node.shape
        assert given["value"]["norm"] == node.value.norm
        assert given.get("module", "") == node.module
    x = leaf(2)
    with recording():
        y = (x * np.array([np.nan, np.inf])).sum()
    y.backward()
    json.dumps(graph(y).to_json(), allow_nan=False)
    before = [node["gradient"] for node in graph(recorded(model, np.ones((1, 2, 8)))).to_json()["nodes"]]
    assert set(before) == {None}
