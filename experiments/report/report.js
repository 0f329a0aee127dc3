"use strict";

// --- making elements ---
const $ = (id) => document.getElementById(id);
const report = JSON.parse($("data").textContent);
const add = (node, kids) => { node.append(...kids.flat(9).filter((kid) => kid !== null && kid !== undefined && kid !== false)); return node; };
const make = (ns) => (tag, attributes = {}, ...kids) => {
  const node = ns ? document.createElementNS(ns, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  return add(node, kids);
};
const el = make(), svg = make("http://www.w3.org/2000/svg"), note = (...kids) => el("p", { class: "note" }, ...kids);
const range = (n) => Array.from({ length: n }, (_, i) => i);
const sum = (xs) => xs.reduce((a, b) => a + b, 0);

// --- numbers ---
const text = (v) => {
  if (v === null || v === undefined || Number.isNaN(v)) return "not kept";
  if (state.digits || !Number.isFinite(v)) return String(v).replaceAll("-", "−");
  const size = Math.abs(v);
  if (size === 0) return "0";
  const s = size >= 1e-3 && size < 1e5 ? v.toFixed(size < 100 ? 4 : 1) : v.toExponential(2);
  return s.replaceAll("-", "−");
};
const select = (label, id, options, value, change) => el(
  "label", {}, label,
  el(
    "select", { id, onchange: (event) => { change(isNaN(event.target.value) ? event.target.value : +event.target.value); $(id).focus(); } },
    options.map(([v, name]) => el("option", { value: v, selected: String(v) === String(value) }, name))
  )
);
const num = (v) => el("data", { value: String(v), class: "n" }, text(v));
const rough = (v) => Math.abs(v) === 0 ? "0" : v.toExponential(0).replaceAll("-", "−");

// --- tensors ---
const cache = new Map();
function tensor(name) {
  if (cache.has(name)) return cache.get(name);
  const packed = report.tensors[name];
  if (!packed) return null;
  const bytes = Uint8Array.from(atob(packed.b64), (c) => c.charCodeAt(0)).buffer;
  const data = packed.dtype === "float64" ? new Float64Array(bytes) : packed.dtype === "float32" ? new Float32Array(bytes) : new Int8Array(bytes);
  const at = (...index) => data[index.reduce((place, i, axis) => place * packed.shape[axis] + i, 0)];
  const found = { shape: packed.shape, data, at };
  cache.set(name, found);
  return found;
}

// --- mathematics ---
const mi = (x) => `<mi>${x}</mi>`, mn = (x) => `<mn>${x}</mn>`, mo = (x) => `<mo stretchy="false">${x}</mo>`;
const row = (...xs) => `<mrow>${xs.join("")}</mrow>`;
const index = (...xs) => row(xs.map((x) => (typeof x === "number" ? mn(x + 1) : mi(x))).join(mo(",")));
const vec = (x, i, c) => c === undefined ? `<msup>${mi(x)}${index(i)}</msup>` : `<msubsup>${mi(x)}${index(c)}${index(i)}</msubsup>`;
const sub = (x, ...i) => `<msub>${mi(x)}${index(...i)}</msub>`;
const prime = (...i) => sub("α′", ...i);
const big = (i, x) => row(`<munder>${mo("∑")}${mi(i)}</munder>`, x);
const frac = (a, b) => `<mfrac>${row(a)}${row(b)}</mfrac>`;
const par = (x) => frac(row(mo("∂"), mi("L")), row(mo("∂"), x));
const weight = (x, d, c) => `<msubsup>${mi("W")}${index(d, c)}${mi(x)}</msubsup>`;
const root = `<msqrt>${mi("d")}</msqrt>`;
const exp = (x) => `<msup>${mi("e")}${row(x)}</msup>`;
const math = (x, block) => {
  const t = document.createElement("template");
  t.innerHTML = `<math${block ? ' display="block"' : ""}>${row(x)}</math>`; return t.content.firstChild;
};

// --- the state of the walk, which lives in the URL ---
const walks = report.walks, start = report.start;
const state = { step: 0, walk: 0, head: 0, query: 0, key: 0, component: 0, dim: 0, matrix: 0, whatif: 0, digits: 0, ...start };
let place = ""; // the panel at which the page opens

const limits = () => {
  const w = walks[state.walk], t = report.tokens[w.probe], names = report.layers[w.layer];
  return {
    walk: walks.length, head: w.heads, query: t[names.asks].length, key: t[names.asked].length,
    component: w.components[0].length, dim: w.featured.length, matrix: 2, whatif: 2, digits: 2
  };
};
const wrap = (x, n) => ((x % n) + n) % n;
function fromHash() {
  const said = location.hash.slice(1);
  if ($(said)) place = said;
  else for (const [name, value] of new URLSearchParams(said)) {
    if (name === "at") place = value;
    else if (name in state && /^\d+$/.test(value)) state[name] = Number(value);
  }
}
function toHash() {
  const hash = "#" + new URLSearchParams({ ...state, ...(place && { at: place }) });
  try { history.replaceState(null, "", hash); } catch { location.hash = hash; }
}

// --- one layer's numbers ---
function here() {
  const w = walks[state.walk], t = report.tokens[w.probe];
  const own = `${w.snapshot}/${w.probe}/${w.layer}.`, shared = `${w.snapshot}/${w.layer}.`;
  const get = (name) => tensor(own + name) || tensor(shared + name);
  const queries = t[report.layers[w.layer].asks], keyNames = t[report.layers[w.layer].asked], n = queries.length, m = keyNames.length;
  const width = get("v").shape[2];
  const distance = (i, j) => Math.min(Math.max(j - i - (m - n), -w.clip), w.clip) + w.clip;
  const hidden = (h, i, j) => get("attn").at(h, i, j) === 0;
  return { ...w, t, get, n, m, width, distance, hidden, queries, keyNames, labelled: t.queries, loss: report.losses[`${w.snapshot}/${w.probe}`] };
}

// --- the steps ---
// Each: key, side, node (of the diagram), chip, title, say (words), math, head and rows (label, operands, term: their
// sum is the value), value, kept (is it minigrad's?), from (steps that made the operands), check (a difference of the
// loss), matrix (how the number stands in the whole).
function stepsOf(L, s) {
  const { get, n, m, width, key_dim: dk, scale } = L;
  const h = s.head, i = s.query, j = s.key, kc = s.component, c = L.components[h][kc], f = s.dim, d = L.featured[f], hv = h * width + c;
  const Q = get("q"), K = get("k"), V = get("v"), S = get("scores"), A = get("attn"), B = get("b"), X = get("x"), C = L.cross ? get("context") : X;
  const few = L.components[h].length, dY = get("out.grad"), dQ = get("q.grad"), dK = get("k.grad"),
    dV = get("v.grad"), dS = get("scores.grad"), dA = get("attn.grad"), dB = get("b.grad");
  const W = { q: get("query.weight"), k: get("key.weight"), v: get("value.weight"), o: get("output.weight"), y: get("output.columns") };
  const who = (i) => `“${L.queries[i]}” (${i + 1})`, whom = (j) => `“${L.keyNames[j]}” (${j + 1})`;
  const fd = (name, ...at) => { const t = get(name + ".fd"); return t ? t.at(...at) : null; };
  const scaled = scale !== 1, over = scaled ? row(mo("/"), root) : "";
  const heads = L.heads > 1 ? ` In head ${h + 1} of ${L.heads}.` : "";
  const seen = range(m).filter((j) => !L.hidden(h, i, j));
  const steps = [];
  const step = (side, key, node, chip, title, rest) => steps.push({ side, key, node, chip, title, kept: true, from: [], check: null, ...rest });
  const mat = (name, rows, cols, at) => ({ name, rows, cols, at });
  const product = (formula, left, right, out, r, k, kept = r) => ({
    formula, note: "The row and the column whose products add up to the marked cell are framed.", all: [{ ...left, row: kept }, { ...right, col: k }, { ...out, cell: [r, k] }]
  });
  const columns = (formula, ...all) => ({ formula, all: all.map((one) => ({ ...one, col: i, cell: one.mark ? [j, i] : undefined })) });
  const M = {
    K: mat("K", dk, m, (r, k) => K.at(h, k, r)), KT: mat("Kᵀ", m, dk, (r, k) => K.at(h, r, k)),
    Q: mat("Q", dk, n, (r, k) => Q.at(h, k, r)), V: mat("V", width, m, (r, k) => V.at(h, k, r)),
    VT: mat("Vᵀ", m, width, (r, k) => V.at(h, r, k)),
    A: mat("A", m, n, (r, k) => S.at(h, k, r)), P: mat("A′", m, n, (r, k) => A.at(h, k, r)),
    PT: mat("A′ᵀ", n, m, (r, k) => A.at(h, r, k)), O: mat("O", width, n, (r, k) => B.at(k, h * width + r)),
    dQ: mat("dQ", dk, n, (r, k) => dQ.at(h, k, r)), dK: mat("dK", dk, m, (r, k) => dK.at(h, k, r)),
    dV: mat("dV", width, m, (r, k) => dV.at(h, k, r)), dA: mat("dA", m, n, (r, k) => dS.at(h, k, r)),
    dAT: mat("dAᵀ", n, m, (r, k) => dS.at(h, r, k)),
    dP: mat("dA′", m, n, (r, k) => dA.at(h, k, r)), dO: mat("dO", width, n, (r, k) => dB.at(k, h * width + r)),
    I: mat("I", L.whole ? X.shape[1] : 0, n, (r, k) => X.at(k, r)), J: mat(L.cross ? "E" : "I", L.whole ? C.shape[1] : 0, m, (r, k) => C.at(k, r)),
  };
  const source = L.cross ? "e" : "a";

  // Forward.
  const letter = (x) => x === "q" ? "a" : source, whole = (x) => x === "q" ? M.I : M.J;
  const project = (x, title, say, w, from, to, at, names, wide, out) => L.whole && step("f", x, x, x, `${title} of ${names(at)}`, {
    say: `What this vector ${say}: component ${c + 1} of ${wide}, one column of the weights times the vector.${heads}`,
    math: row(vec(x, at, c), mo("="), big("d", row(weight(x, "d", c), vec(letter(x), at, "d")))),
    head: ["component d", `${letter(x)} of ${names(at)}`, `W${x}`, "product"],
    rows: range(from.shape[1]).map((d) => [d + 1, from.at(at, d), w.at(d, h, kc), from.at(at, d) * w.at(d, h, kc)]),
    value: to.at(h, at, c), symbol: vec(x, at, c),
    matrix: product(
      row(mi(x.toUpperCase()), mo("="), `<msup>${mi("W")}${mi(x)}</msup>`, mi(whole(x).name)),
      mat(`W${x} (rows kept)`, few, from.shape[1], (r, k) => w.at(k, h, r)), whole(x), out, c, at, kc
    ),
  });
  project("q", "Query", "asks for", W.q, X, Q, i, who, dk, M.Q);
  project("k", "Key", "offers to be found by", W.k, C, K, j, whom, dk, M.K);
  project("v", "Value", "answers with", W.v, C, V, j, whom, width, M.V);
  const table = L.clip !== null ? get("table") : null;
  const apart = `${j - i}`.replace("-", "−"), shift = sub("p", apart);
  const bias = (i, j) => table ? table.at(h, L.distance(i, j)) : 0;
  step("f", "alpha", "α", "α", `Relevance of ${whom(j)} to ${who(i)}`, {
    say: `The query asks, the key is asked: their dot product${scaled ? ", divided by √d = √" + dk : ""}.${table ? ` The learned bias for the distance ${apart} is added.` : ""}${heads}`,
    math: row(
      sub("α", i, j), mo("="), vec("q", i), mo("·"), vec("k", j), over,
      table ? row(mo("+"), shift) : ""
    ),
    head: ["component c", `q of ${who(i)}`, `k of ${whom(j)}`, scaled ? "q · k / √d" : "q · k"],
    rows: [
      ...range(dk).map((c) => [c + 1, Q.at(h, i, c), K.at(h, j, c), Q.at(h, i, c) * K.at(h, j, c) * scale]),
      ...(table ? [[`position bias, distance ${apart}`, null, null, bias(i, j)]] : [])
    ],
    value: S.at(h, i, j), symbol: sub("α", i, j), from: ["q", "k"],
    matrix: product(
      row(mi("A"), mo("="), `<msup>${mi("K")}${mi("T")}</msup>`, mi("Q"), over, table ? row(mo("+"), mi("P")) : ""),
      M.KT, M.Q, M.A, j, i
    ),
  });
  const top = Math.max(...seen.map((j) => S.at(h, i, j)));
  const e = (j) => L.hidden(h, i, j) ? 0 : Math.exp(S.at(h, i, j) - top), Z = sum(range(m).map(e));
  step("f", "exp", "α′", "Σe", `Exponentials of the scores of ${who(i)}`, {
    say: "Each score becomes positive. The largest score is subtracted from all first, which changes no quotient and lets nothing overflow." + (seen.length < m ? " What may not be looked at counts 0." : ""),
    math: row(mi("Z"), mo("="), big("j", exp(row(sub("α", i, "j"), mo("−"), mi("max"))))),
    head: ["key j", "score α", "α − max", "exponential"],
    rows: range(m).map((k) => [whom(k), S.at(h, i, k), S.at(h, i, k) - top, e(k), k === j]),
    value: Z, symbol: mi("Z"), kept: false, from: ["alpha"],
    matrix: columns(row(mo("each column of"), mi("A")), { ...M.A, mark: 1 }),
  });
  step("f", "prime", "α′", "α′", `Attention of ${who(i)} to ${whom(j)}`, {
    say: `The share of this exponential in their sum: the weights of a query are positive and add up to 1. ${who(i)} gives ${whom(j)} ${(100 * A.at(h, i, j)).toFixed(1)} %.`,
    math: row(prime(i, j), mo("="), frac(exp(row(sub("α", i, j), mo("−"), mi("max"))), mi("Z"))),
    head: ["key j", "exponential", "Z", "quotient"], rows: [[whom(j), e(j), Z, e(j) / Z]],
    value: A.at(h, i, j), symbol: prime(i, j), from: ["alpha", "exp"],
    also: ["All weights of this query, which add up to 1", range(m).map((k) => [whom(k), A.at(h, i, k), k === j])],
    matrix: columns(row(mi("A′"), mo("="), mi("softmax"), mo("of each column of"), mi("A")), { ...M.A, mark: 1 }, { ...M.P, mark: 1 }),
  });
  step("f", "b", "b", "b", `Output for ${who(i)}`, {
    say: `The values, averaged by attention: component ${c + 1} of ${width}.${heads}`,
    math: row(vec("b", i, c), mo("="), big("j", row(prime(i, "j"), vec("v", "j", c)))),
    head: ["key j", "α′", "v", "product"], rows: range(m).map((k) => [whom(k), A.at(h, i, k), V.at(h, k, c), A.at(h, i, k) * V.at(h, k, c), k === j]),
    value: B.at(i, hv), symbol: vec("b", i, c), from: ["prime", "v"],
    matrix: product(row(mi("O"), mo("="), mi("V"), mi("A′")), M.V, M.P, M.O, c, i),
  });
  if (L.whole && W.o) step("f", "y", "y", "y", `The heads' answers for ${who(i)} together`, {
    say: `With several heads, their outputs stand side by side and one more matrix mixes them: component ${d + 1} of the layer's output.`,
    math: row(vec("y", i, d), mo("="), big("c", row(weight("o", "c", d), vec("b", i, "c")))),
    head: ["head, component", "b", "Wo", "product"],
    rows: range(B.shape[1]).map((k) => [
      `head ${Math.floor(k / width) + 1}, ${k % width + 1}`, B.at(i, k), W.y.at(k, f), B.at(i, k) * W.y.at(k, f),
      k === hv
    ]),
    value: get("out").at(i, f), symbol: vec("y", i, d), from: ["b"],
  });
  if (L.whole && L.residual && get("input")) step("f", "plus", "y", "+", `The layer's answer is added to what came in`, {
    say: "The residual path: the vector itself goes around the layer. (What entered the layer as a is this vector after its norm.)",
    math: row(`<msubsup>${mi("x")}${index(d)}${row(mn(i + 1), mo("′"))}</msubsup>`, mo("="), vec("x", i, d), mo("+"), vec("y", i, d)),
    head: ["", "term"], rows: [["x, which came in", get("input").at(i, f)], ["y, the layer's answer", get("out").at(i, f)]],
    value: get("input").at(i, f) + get("out").at(i, f),
    symbol: `<msubsup>${mi("x")}${index(d)}${row(mn(i + 1), mo("′"))}</msubsup>`, kept: false,
    from: W.o ? ["y"] : ["b"],
  });
  const smooth = report.run.config.settings.label_smoothing, N = L.loss.mean.length, surprise = row(mo("("), mo("−"), mi("ln"), mi("p"), mo(")"));
  step("f", "loss", "L", "L", "The loss", {
    say: `What the rest of the network makes of it: the cross-entropy of each label${smooth ? `, with label smoothing ε = ${smooth} (that much of it is the mean over all labels there are)` : ""}, divided by their number. Everything backward asks: how would this one number change?`,
    math: row(
      mi("L"), mo("="), frac(mn(1), mn(N)), mo("∑"),
      smooth ? row(mo("["), mo("("), mn(1), mo("−"), mi("ε"), mo(")"), surprise, mo("+"), mi("ε"), mi("mean"), surprise, mo("]")) : surprise
    ),
    head: ["label of", "right", "said", "p of the right one", "−ln p", ...(smooth ? ["mean of −ln p"] : []), "share of the loss"],
    rows: L.loss.unlikely.map((x, t) => [
      L.loss.places[t] < 0 ? "the whole" : L.labelled[L.loss.places[t]], L.loss.right[t], L.loss.said[t],
      Math.exp(-x), x, ...(smooth ? [L.loss.mean[t]] : []), ((1 - smooth) * x + smooth * L.loss.mean[t]) / N
    ]),
    value: L.loss.loss, symbol: mi("L"), from: ["b"],
  });

  // Backward.
  step("b", "db", "b", "∂b", `How the loss depends on b of ${who(i)}`, {
    ...(L.whole && W.o ? {
      say: "The gradient of the layer's output has come back through the rest of the network; one row of the output matrix takes it on to b.",
      math: row(par(vec("b", i, c)), mo("="), big("d", row(weight("o", c, "d"), par(vec("y", i, "d"))))),
      head: ["component d", "Wo", "∂L/∂y", "product"],
      rows: range(W.o.shape[0]).map((d) => [d + 1, W.o.at(d, h, kc), dY.at(i, d), W.o.at(d, h, kc) * dY.at(i, d)]),
      from: ["loss", "y"],
    } : {
      say: "This has come back through the rest of the network.", math: par(vec("b", i, c)),
      head: ["", "gradient"], rows: [["what came back", dB.at(i, hv)]], from: ["loss"],
    }),
    value: dB.at(i, hv), symbol: par(vec("b", i, c)), check: fd("b", i, h, kc),
  });
  step("b", "dv", "v", "∂v", `How the loss depends on the value of ${whom(j)}`, {
    say: "Every query that looked at this vector sends its share back, by the weight with which it looked.",
    math: row(par(vec("v", j, c)), mo("="), big("i", row(prime("i", j), par(vec("b", "i", c))))),
    head: ["query i", "α′", "∂L/∂b", "product"],
    rows: range(n).map((k) => [who(k), A.at(h, k, j), dB.at(k, hv), A.at(h, k, j) * dB.at(k, hv), k === i]),
    value: dV.at(h, j, c), symbol: par(vec("v", j, c)), from: ["db", "prime"], check: fd("v", h, j, kc),
    matrix: product(row(mi("dV"), mo("="), mi("dO"), `<msup>${mi("A′")}${mi("T")}</msup>`), M.dO, M.PT, M.dV, c, j),
  });
  step("b", "dprime", "α′", "∂α′", `How the loss depends on the attention of ${who(i)} to ${whom(j)}`, {
    say: "Would it help to look there more? That depends on whether what is found there, v, points along what is wanted, the gradient of b.",
    math: row(par(prime(i, j)), mo("="), vec("v", j), mo("·"), par(vec("b", i))),
    head: ["component c", "v", "∂L/∂b", "product"],
    rows: range(width).map((k) => [k + 1, V.at(h, j, k), dB.at(i, h * width + k), V.at(h, j, k) * dB.at(i, h * width + k)]),
    value: dA.at(h, i, j), symbol: par(prime(i, j)), from: ["v", "db"], check: fd("attn", h, i, j),
    matrix: product(row(mi("dA′"), mo("="), `<msup>${mi("V")}${mi("T")}</msup>`, mi("dO")), M.VT, M.dO, M.dP, j, i),
  });
  const mean = sum(range(m).map((k) => A.at(h, i, k) * dA.at(h, i, k)));
  const softmax = columns(
    row(mi("dA"), mo("="), mi("A′"), mo("∗"), mo("("), mi("dA′"), mo("−"), mi("columnsum"), mo("("), mi("A′"), mo("∗"), mi("dA′"), mo(")"), mo(")")),
    { ...M.P, mark: 1 }, { ...M.dP, mark: 1 }, { ...M.dA, mark: 1 }
  );
  step("b", "mean", "α′", "S", `What all of the attention of ${who(i)} gains on average`, {
    say: "The weights of a query add up to 1: more here is less elsewhere. So what counts is the gain beyond this average, taken by attention itself.",
    math: row(sub("S", i), mo("="), big("j", row(prime(i, "j"), par(prime(i, "j"))))),
    head: ["key j", "α′", "∂L/∂α′", "product"],
    rows: range(m).map((k) => [whom(k), A.at(h, i, k), dA.at(h, i, k), A.at(h, i, k) * dA.at(h, i, k), k === j]),
    value: mean, symbol: sub("S", i), kept: false, from: ["prime", "dprime"], check: fd("rows", h, i),
    moved: "Scale all weights of this query by 1 + h, and by 1 − h", matrix: softmax,
  });
  step("b", "dalpha", "α", "∂α", `How the loss depends on the score of ${whom(j)} for ${who(i)}`, {
    say: "Softmax backward: the gain here, less the average gain, times the weight. Where the weight is near 0, hardly anything comes back: attention that is sure of itself learns slowly.",
    math: row(par(sub("α", i, j)), mo("="), prime(i, j), mo("("), par(prime(i, j)), mo("−"), sub("S", i), mo(")")),
    head: ["", "α′", "factor", "product"],
    rows: [
      ["the gain here, ∂L/∂α′", A.at(h, i, j), dA.at(h, i, j), A.at(h, i, j) * dA.at(h, i, j)],
      ["less the average, −S", A.at(h, i, j), -mean, -A.at(h, i, j) * mean]
    ],
    value: dS.at(h, i, j), symbol: par(sub("α", i, j)), from: ["prime", "dprime", "mean"], check: fd("scores", h, i, j), matrix: softmax,
  });
  step("b", "zero", "α", "Σ∂α", `All scores of ${who(i)} together`, {
    say: "The same amount added to all scores of a query changes no weight. So these gradients add up to 0 (but for rounding).",
    math: row(big("j", par(sub("α", i, "j"))), mo("="), mn(0)),
    head: ["key j", "∂L/∂α"], rows: range(m).map((k) => [whom(k), dS.at(h, i, k), k === j]),
    value: 0, symbol: big("j", par(sub("α", i, "j"))), kept: false, from: ["dalpha"], check: fd("shifts", h, i),
    moved: "Add a little h to all scores of this query, and take it from them", matrix: softmax,
  });
  if (table) {
    const column = L.distance(i, j), pairs = range(n).flatMap((i) => range(m).map((j) => [i, j])).filter(([i, j]) => L.distance(i, j) === column);
    step("b", "dp", "α", "∂p", `The position bias for the distance ${apart}`, {
      say: "The bias stands in the scores of all pairs at this distance, and gets all their gradients.",
      math: row(par(shift), mo("="), big(`j−i=${apart}`, par(sub("α", "i", "j")))),
      head: ["pair", "∂L/∂α"], rows: pairs.map(([a, b]) => [`${who(a)} asks ${whom(b)}`, dS.at(h, a, b), a === i && b === j]),
      value: get("table.grad").at(h, column), symbol: par(shift),
      from: ["dalpha"], check: fd("table", h, column),
    });
  }
  step("b", "dq", "q", "∂q", `How the loss depends on the query of ${who(i)}`, {
    say: "Every key pulls the query to itself (or pushes it away), by the gradient of its score.",
    math: row(par(vec("q", i, c)), mo("="), big("j", row(par(sub("α", i, "j")), vec("k", "j", c))), over),
    head: ["key j", "∂L/∂α", "k", scaled ? "product / √d" : "product"],
    rows: range(m).map((k) => [whom(k), dS.at(h, i, k), K.at(h, k, c), dS.at(h, i, k) * K.at(h, k, c) * scale, k === j]),
    value: dQ.at(h, i, c), symbol: par(vec("q", i, c)), from: ["dalpha", "k"], check: fd("q", h, i, kc),
    matrix: product(row(mi("dQ"), mo("="), mi("K"), mi("dA"), over), M.K, M.dA, M.dQ, c, i),
  });
  step("b", "dk", "k", "∂k", `How the loss depends on the key of ${whom(j)}`, {
    say: "The other way round: all queries that asked it.",
    math: row(par(vec("k", j, c)), mo("="), big("i", row(par(sub("α", "i", j)), vec("q", "i", c))), over),
    head: ["query i", "∂L/∂α", "q", scaled ? "product / √d" : "product"],
    rows: range(n).map((k) => [who(k), dS.at(h, k, j), Q.at(h, k, c), dS.at(h, k, j) * Q.at(h, k, c) * scale, k === i]),
    value: dK.at(h, j, c), symbol: par(vec("k", j, c)), from: ["dalpha", "q"], check: fd("k", h, j, kc),
    matrix: product(row(mi("dK"), mo("="), mi("Q"), `<msup>${mi("dA")}${mi("T")}</msup>`, over), M.Q, M.dAT, M.dK, c, j),
  });
  if (L.whole) {
    for (const [x, name, G, from, count, names] of [["q", "query", dQ, X, n, who], ["k", "key", dK, C, m, whom], ["v", "value", dV, C, m, whom]]) {
      step("b", `dW${x}`, x, `∂W${x}`, `How the loss depends on one weight of W${x}`, {
        say: `The weight from component ${d + 1} of the vectors to component ${c + 1} of the ${name}: it is used by every vector, and gets what all of them send back.`,
        math: row(par(weight(x, d, c)), mo("="), big("i", row(vec(letter(x), "i", d), par(vec(x, "i", c))))),
        head: ["vector i", letter(x), `∂L/∂${x}`, "product"],
        rows: range(count).map((k) => [names(k), from.at(k, d), G.at(h, k, c), from.at(k, d) * G.at(h, k, c)]),
        value: get(`${name}.weight.grad`).at(f, h, kc), symbol: par(weight(x, d, c)), from: [`d${x}`], check: fd(`${name}.weight`, f, h, kc),
        matrix: product(
          row(mi(`dW${x}`), mo("="), mi(`d${x.toUpperCase()}`), `<msup>${mi(whole(x).name)}${mi("T")}</msup>`),
          M[`d${x.toUpperCase()}`],
          mat(`${whole(x).name}ᵀ (columns kept)`, count, L.featured.length, (r, k) => from.at(r, L.featured[k])),
          mat(`dW${x} (what is kept)`, few, L.featured.length, (r, k) => get(`${name}.weight.grad`).at(k, h, r)), kc,
          f, c
        ),
      });
    }
    const asked = L.cross ? [j, whom] : [i, who];
    for (const [x, name, G, wide, at, names] of [["q", "query", dQ, dk, i, who], ["k", "key", dK, dk, ...asked], ["v", "value", dV, width, ...asked]]) {
      const w = get(`${name}.rows`), via = row(`<msub>${par(vec(letter(x), at, d))}${mi(x)}</msub>`);
      step("b", `path${x}`, "a", `a←${x}`, `What comes back to ${names(at)} by way of its ${name}`, {
        say: `A path by which component ${d + 1} of the vector reaches the loss: through all components of its ${name}.`,
        math: row(via, mo("="), big(L.heads > 1 ? "h,c" : "c", row(weight(x, d, "c"), par(vec(x, at, "c"))))),
        head: ["head, component", `W${x}`, `∂L/∂${x}`, "product"],
        rows: range(w.shape[1]).map((k) => {
          const one = Math.floor(k / wide), g = G.at(one, at, k % wide);
          return [`head ${one + 1}, ${k % wide + 1}`, w.at(f, k), g, w.at(f, k) * g, one === h];
        }),
        value: get(`${name}.grad`).at(at, f), symbol: via,
        from: [`d${x}`], check: fd(name, at, f),
        moved: `Move this component by a little h both ways, only as the ${name} sees it`,
      });
    }
    const value = (name, at) => get(`${name}.grad`).at(at, f);
    if (L.cross) step("b", "de", "a", "∂e", `How the loss depends on ${whom(j)}, by way of this layer`, {
      say: "A vector that is asked reaches the loss by two paths: its key and its value.",
      math: row(par(vec("e", j, d)), mo("="), mi("k"), mo("+"), mi("v")),
      head: ["path", "gradient"],
      rows: [["by way of the key", value("key", j)], ["by way of the value", value("value", j)]],
      value: value("key", j) + value("value", j), symbol: par(vec("e", j, d)), kept: false, from: ["pathk", "pathv"],
    });
    step("b", "da", "a", "∂a", `How the loss depends on a of ${who(i)}`, {
      say: L.cross ? "A vector that only asks reaches the loss by its query." : "A vector asks, is asked, and answers: its gradient is the sum of the three paths.",
      math: row(par(vec("a", i, d)), mo("="), L.cross ? mi("q") : row(mi("q"), mo("+"), mi("k"), mo("+"), mi("v"))),
      head: ["path", "gradient"],
      rows: [
        ...(L.cross ? ["query"] : ["query", "key", "value"]).map((name) => [`by way of the ${name}`, value(name, i)]),
        ...(L.around ? [["around the layer (residual)", dY.at(i, d)]] : [])
      ],
      value: value("x", i), symbol: par(vec("a", i, d)), from: L.cross ? ["pathq"] : ["pathq", "pathk", "pathv"], check: fd("x", i, f),
      matrix: {
        formula: row(
          mi("dI"), mo("="),
          ...(L.cross ? ["q"] : ["q", "k", "v"]).map((x, k) => row(
            k ? mo("+") : "", `<msup>${mi(`W${x}`)}${mi("T")}</msup>`, mi(`d${x.toUpperCase()}`)
          ))
        ),
        all: [{ ...mat("dI (rows kept)", L.featured.length, n, (r, k) => get("x.grad").at(k, r)), col: i, cell: [f, i] }]
      },
    });
    if (L.residual && get("norm.grad")) step("b", "dx", "x", "∂x", `How the loss depends on the vector of ${who(i)} before the layer and its norm`, {
      say: "The fourth path: around the layer. The sum x + y passes its gradient on to x unchanged, which is why deep stacks still learn.",
      math: row(par(vec("x", i, d)), mo("="), par(vec("y", i, d)), mo("+"), mo("(through norm and layer)")),
      head: ["path", "gradient"], rows: [["around the layer (residual)", dY.at(i, d)], ["through the norm and the layer", value("norm", i)]],
      value: value("input", i), symbol: par(vec("x", i, d)), from: ["da", "db"], check: fd("input", i, f),
    });
  }
  return steps;
}

// --- drawing a step ---
const NODES = { x: [-44, 66], a: [24, 66], q: [92, 20], k: [92, 66], v: [92, 112], "α": [160, 43], "α′": [228, 43], b: [296, 66], y: [364, 66], L: [432, 66] };
const WIRES = [["x", "a"], ["a", "q"], ["a", "k"], ["a", "v"], ["q", "α"], ["k", "α"], ["α", "α′"], ["α′", "b"], ["v", "b"], ["b", "y"], ["y", "L"]];
function diagram(step, hasOutput, hasNorm) {
  const back = step.side === "b", drawn = ([name]) => name !== "x" || hasNorm;
  const wires = WIRES.filter(drawn).map(([a, b]) => {
    const [from, to] = back ? [b, a] : [a, b], [x1, y1] = NODES[from], [x2, y2] = NODES[to];
    const dx = x2 - x1, dy = y2 - y1, length = Math.hypot(dx, dy), gap = 22 / length;
    return svg(
      "line",
      { class: "wire", x1: x1 + dx * gap, y1: y1 + dy * gap, x2: x2 - dx * gap * 1.25, y2: y2 - dy * gap * 1.25, "marker-end": "url(#arrow)" }
    );
  });
  const nodes = Object.entries(NODES).filter(drawn).map(([name, [x, y]]) => svg(
    "g", { class: name === step.node ? "node on" : "node" },
    svg("rect", { x: x - 19, y: y - 15, width: 38, height: 30, rx: 7 }),
    svg("text", { x, y: y + 5, "text-anchor": "middle" }, (back ? "∂" : "") + (name === "y" && !hasOutput ? "x′" : name))
  ));
  return svg("svg", { viewBox: hasNorm ? "-68 0 524 132" : "0 0 456 132", role: "img", "aria-label": `Where this step stands: at ${step.node}, ${back ? "going backward from the loss" : "going forward"}. The order is ${hasNorm ? "x before its norm; " : ""}a; q, k and v; alpha; alpha prime; b; the output; the loss.` },
    svg("defs", {}, svg(
      "marker", { id: "arrow", viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 7, markerHeight: 7, orient: "auto" },
      svg("path", { d: "M0 0L10 5L0 10z" })
    )),
    wires, nodes);
}

// A table of rows [label, ...numbers], of which those that end with true are marked.
const lastNumber = (cells) => cells.filter((x) => typeof x === "number").at(-1);
function sheet(label, head, rows, foot) {
  const line = (cells) => {
    const shown = cells.filter((x) => typeof x !== "boolean");
    const cell = (x, k) => el("td", { class: k === shown.length - 2 && "term" }, typeof x === "number" ? num(x) : x ?? "");
    return el("tr", { class: cells.at(-1) === true && "lit" }, el("th", { scope: "row" }, shown[0]), shown.slice(1).map(cell));
  };
  return el(
    "div", { class: "scroll narrow", tabindex: 0, role: "region", "aria-label": label },
    el(
      "table", {},
      head && el("thead", {}, el("tr", {}, head.map((x, k) => el("th", { scope: "col", class: !k && "left" }, x)))),
      el("tbody", {}, rows.map(line)), foot
    )
  );
}
function operands(step) {
  const total = el(
    "tfoot", {},
    el(
      "tr", {},
      el("th", { scope: "row", class: "left", colspan: step.head.length - 1 }, step.rows.length > 1 ? `sum of ${step.rows.length}` : "result"),
      el("td", { id: "total" }, num(sum(step.rows.map(lastNumber))))
    )
  );
  const table = sheet("Operands", step.head, step.rows, total);
  table.id = "operands";
  return table;
}

function picture(matrix) {
  const most = Math.max(matrix.rows, matrix.cols), unit = most > 40 ? 6 : most > 20 ? 9 : most > 8 ? 13 : 20;
  const values = range(matrix.rows).map((r) => range(matrix.cols).map((k) => matrix.at(r, k)));
  const largest = Math.max(...values.flat().filter(Number.isFinite).map(Math.abs), 1e-300);
  const cells = values.flatMap((line, r) => line.map((v, k) => Number.isFinite(v) && Math.abs(v) / largest > 0.01 && svg(
    "rect",
    { class: v > 0 ? "plus" : "minus", x: k * unit, y: r * unit, width: unit, height: unit, "fill-opacity": (Math.abs(v) / largest).toFixed(2) }
  )));
  const width = matrix.cols * unit, height = matrix.rows * unit;
  const frame = (x, y, w, h) => svg("rect", { class: "outline", x, y, width: w, height: h });
  const [r, k] = matrix.cell || [];
  const marks = [
    matrix.row !== undefined && frame(0, matrix.row * unit, width, unit),
    matrix.col !== undefined && frame(matrix.col * unit, 0, unit, height),
    matrix.cell && frame(k * unit, r * unit, unit, unit)
  ];
  const where = matrix.cell ? `, row ${r + 1} and column ${k + 1} marked: ${text(matrix.at(r, k))}` : matrix.row !== undefined ? `, row ${matrix.row + 1} marked` : `, column ${matrix.col + 1} marked`;
  return el("figure", {}, svg("svg", { viewBox: `-1 -1 ${width + 2} ${height + 2}`, width: width + 2, height: height + 2, role: "img", "aria-label": `${matrix.name}, ${matrix.rows} by ${matrix.cols}${where}` }, cells, marks),
    el("figcaption", {}, `${matrix.name}: ${matrix.rows} × ${matrix.cols}`, matrix.cell && [", here ", el("span", { class: "lit-cell" }, num(matrix.at(r, k)))]));
}
function matrixView(step) {
  const view = step.matrix;
  if (!view) return note("This step has no matrix form of its own.");
  return el(
    "div", { id: "matrix" }, el("h4", {}, "The same number inside the whole, one column a vector as in the lecture"),
    math(view.formula, true), el("div", { class: "matrices" }, view.all.map(picture)),
    note(`Blue is positive, orange is negative, the deeper the larger. ${view.note || "The query's column is framed."}`)
  );
}

function whatIf(L, s) {
  const h = s.head, i = s.query, Q = L.get("q"), K = L.get("k"), table = L.clip !== null ? L.get("table") : null;
  const root = 1 / Math.sqrt(L.key_dim);
  const weights = (scale) => {
    const scores = range(L.m).map((j) => sum(range(L.key_dim).map((c) => Q.at(h, i, c) * K.at(h, j, c))) * scale + (table ? table.at(h, L.distance(i, j)) : 0));
    const open = scores.map((x, j) => L.hidden(h, i, j) ? -Infinity : x), top = Math.max(...open), e = open.map((x) => Math.exp(x - top)), Z = sum(e);
    return [scores, e.map((x) => x / Z)];
  };
  const [a, p] = weights(root), [b, q] = weights(1);
  const entropy = (w) => sum(w.filter((x) => x > 0).map((x) => -x * Math.log(x)));
  return el("div", { id: "whatif" }, el("h4", {}, "What if: with and without the division by √d"), note(`Recomputed on this page from q and k, not by minigrad. Training was ${L.scale === 1 ? "without" : "with"} the division.${table ? " Both have the bias p, undivided." : ""}`),
    sheet(
      "What if", ["key j", "α with / √d", "α′ with", "α without", "α′ without"],
      range(L.m).map((j) => [`“${L.keyNames[j]}” (${j + 1})`, a[j], p[j], b[j], q[j], j === s.key])
    ),
    el("p", {}, `The entropy of the weights is ${entropy(p).toFixed(3)} with the division and ${entropy(q).toFixed(3)} without (0: all on one key; ${Math.log(L.m).toFixed(3)}: evenly spread).`));
}

function checkMe(step) {
  if (step.side !== "b") return null;
  if (step.check === null) return note(step.kept ? "Differences of the loss are kept for the first sequence, after training." : "No difference of its own: its parts have been checked.");
  const error = Math.abs(step.check - step.value);
  return el("div", { class: "check", id: "check" }, el("strong", {}, "Check me."), `${step.moved || "Move this very number by a little h both ways"}, run the rest of the network in float64, and look at the loss: `, math(row(frac(row(mi("L"), mo("("), mo("+"), mi("h"), mo(")"), mo("−"), mi("L"), mo("("), mo("−"), mi("h"), mo(")")), row(mn(2), mi("h"))), mo("="))), " ",
    el("span", { id: "difference" }, num(step.check)), `; minigrad's gradient is `, num(step.value),
    `. They differ by ${rough(error)}: `,
    el("span", { class: error <= 1e-6 ? "good" : "bad" }, error <= 1e-6 ? "they agree." : "they disagree."));
}

// --- the stepper ---
let steps = [], drawnFor = "";
function show() {
  state.walk = Math.min(state.walk, walks.length - 1);
  const most = limits();
  for (const name of Object.keys(most)) state[name] = Math.min(state[name], most[name] - 1);
  const L = here();
  steps = stepsOf(L, state);
  state.step = Math.min(state.step, steps.length - 1);
  const step = steps[state.step];
  choices(L);
  chips();
  $("diagram").replaceChildren(diagram(step, L.output, L.get("input")));
  const total = sum(step.rows.map(lastNumber)), gap = Math.abs(total - step.value);
  const goto = (key) => {
    const k = steps.findIndex((one) => one.key === key);
    return k >= 0 && el("button", { type: "button", onclick: () => go(k) }, steps[k].chip);
  };
  $("step").className = step.side === "b" ? "backward" : "forward";
  $("step").replaceChildren(...[
    el("h3", { id: "step-title" }, step.title), el("p", {}, step.say), math(step.math, true), operands(step),
    el(
      "p", { class: "result" }, math(row(step.symbol, mo("="))), " ", el("span", { id: "value" }, num(step.value)),
      el(
        "span", { class: "note" },
        step.kept ? `  minigrad's own number; the ${step.rows.length > 1 ? "terms above add up to it" : "result above equals it"}${gap ? `, to ${rough(gap)}` : " exactly"}.` : `  computed on this page from minigrad's numbers${gap ? `; the terms differ from it by ${rough(gap)}` : ""}.`
      )
    ),
    step.also && el(
      "details", {}, el("summary", {}, step.also[0]),
      sheet(step.also[0], null, [...step.also[1], ["sum", sum(step.also[1].map((one) => one[1]))]])
    ),
    checkMe(step),
    step.from.length > 0 && el("p", { class: "links" }, "The operands were made in: ", step.from.map(goto)),
    state.whatif === 1 && whatIf(L, state), state.matrix === 1 && matrixView(step),
  ].filter(Boolean));
  $("live").textContent = `Step ${state.step + 1} of ${steps.length}: ${step.title}`;
  for (const [key, on] of [["m", state.matrix], ["w", state.whatif], ["d", state.digits]]) button(key).setAttribute("aria-pressed", String(Boolean(on)));
  button("ArrowLeft").disabled = button("Home").disabled = state.step === 0;
  button("ArrowRight").disabled = button("End").disabled = state.step === steps.length - 1;
  toHash();
}
const button = (key) => document.querySelector(`[data-key="${key}"]`);
const go = (k) => { state.step = Math.min(Math.max(k, 0), steps.length - 1); show(); };

function chips() {
  const signature = steps.map((step) => step.key).join();
  if (signature !== drawnFor) {
    drawnFor = signature;
    const line = (side, name) => el(
      "div", {}, el("span", {}, name),
      el(
        "ol", { "aria-label": name },
        steps.map((step, k) => step.side === side && el("li", {}, el("button", { type: "button", "data-step": k, onclick: () => go(k) }, step.chip)))
      )
    );
    $("steps").replaceChildren(line("f", "Forward"), line("b", "Backward"));
  }
  for (const one of $("steps").querySelectorAll("button")) {
    one.setAttribute("aria-label", steps[one.dataset.step].title);
    if (Number(one.dataset.step) === state.step) one.setAttribute("aria-current", "step"); else one.removeAttribute("aria-current");
  }
}

function choices(L) {
  const most = limits(), numbered = (names) => names.map((name, k) => `${k + 1}: ${name}`);
  const unique = (name) => [...new Set(walks.map((w) => w[name]))];
  const at = walks[state.walk];
  const pick = (name, value) => {
    const wanted = { probe: at.probe, snapshot: at.snapshot, layer: at.layer, [name]: value };
    const fits = (w, names) => names.every((name) => w[name] === wanted[name]);
    const order = [["probe", "snapshot", "layer"], ...["layer", "snapshot", "probe"].filter((x) => x !== name).map((x) => [name, x]), [name]];
    for (const names of order) { const k = walks.findIndex((w) => fits(w, names)); if (k >= 0) { state.walk = k; break; } }
    show();
  };
  const choose = (label, name, options, value, change) => select(label, `choose-${name}`, options, value, change);
  const counted = (label, name, names) => choose(label, name, names.map((x, k) => [k, x]), state[name], (v) => { state[name] = v; show(); });
  $("choices").replaceChildren(
    ...[["sequence", "probe", (p) => report.tokens[p].text], ["weights", "snapshot", (x) => report.snapshots[x]], ["layer", "layer", (x) => x]].map(
      ([label, name, told]) => choose(label, name, unique(name).map((x) => [x, told(x)]), at[name], (v) => pick(name, v))
    ),
    counted("head", "head", range(most.head).map((x) => `${x + 1}`)),
    counted("query i (asks)", "query", numbered(L.queries)), counted("key j (is asked)", "key", numbered(L.keyNames)),
    counted("component c", "component", L.components[Math.min(state.head, most.head - 1)].map((c) => `${c + 1}`)),
    ...(L.whole ? [counted("component d of a", "dim", L.featured.map((d) => `${d + 1}`))] : []),
    note("To keep this file small, " + (L.whole ?
      `${L.components[0].length} of the ${L.key_dim} components c and ${L.featured.length} of the ${L.get("x").shape[1]} components d can be chosen: those to which the loss is most sensitive.` :
      "the walk begins at the scores here; all steps are kept for the first sequence after training."))
  );
}

function press(key, shift) {
  const turn = (name, by) => { state[name] = wrap(state[name] + by, limits()[name]); show(); };
  const actions = {
    ArrowLeft: () => go(state.step - 1), ArrowRight: () => go(state.step + 1), Home: () => go(0), End: () => go(steps.length - 1),
    ArrowUp: () => turn(shift ? "query" : "key", -1), ArrowDown: () => turn(shift ? "query" : "key", 1),
    "[": () => turn("component", -1), "]": () => turn("component", 1),
    f: () => go(0), b: () => go(steps.findIndex((step) => step.side === "b")), m: () => turn("matrix", 1), w: () => turn("whatif", 1),
    d: () => turn("digits", 1), "?": () => $("keys").showModal(),
  };
  const action = actions[key.length === 1 ? key.toLowerCase() : key];
  if (action) action();
  return Boolean(action);
}

// --- attention beside its gradient ---
const mapped = {
  probe: start ? walks[start.walk].probe : 0, snapshot: "last",
  layer: start ? walks[start.walk].layer : Object.keys(report.layers).at(-1), head: start ? start.head : 0
};
const KINDS = [["α′, attention", (a) => a], ["∂L/∂α′, its gradient", (a, g) => g], ["α′ · ∂L/∂α′, their product", (a, g) => a * g]];
function maps() {
  const t = report.tokens[mapped.probe], name = `${mapped.snapshot}/${mapped.probe}/${mapped.layer}.attn`,
    A = tensor(name), G = tensor(name + ".grad");
  const names = report.layers[mapped.layer], asks = t[names.asks], asked = t[names.asked];
  mapped.head = Math.min(mapped.head, A.shape[0] - 1);
  const pick = (label, key, options) => select(label, `map-${key}`, options, mapped[key], (v) => { mapped[key] = v; maps(); });
  const kept = [...new Set(["first", ...Object.keys(report.snapshots)])].filter((x) => tensor(`${x}/${mapped.probe}/${mapped.layer}.attn`));
  $("map-choices").replaceChildren(
    pick("sequence", "probe", report.tokens.map((one, p) => [p, one.text])),
    pick("weights", "snapshot", kept.map((x) => [x, report.snapshots[x]])),
    pick("layer", "layer", Object.keys(report.layers).map((x) => [x, x])),
    pick("head", "head", range(A.shape[0]).map((h) => [h, h + 1]))
  );
  const grid = ([title, value], k) => {
    const at = (i, j) => value(A.at(mapped.head, i, j), G ? G.at(mapped.head, i, j) : NaN);
    const most = Math.max(...range(asks.length).flatMap((i) => range(asked.length).map((j) => Math.abs(at(i, j)))), 1e-300),
      power = k ? Math.floor(Math.log10(most)) : 0;
    const cell = (i, j) => {
      const v = at(i, j), share = Math.round(90 * Math.abs(v) / most);
      return el(
        "td",
        {
          tabindex: i || j ? -1 : 0, "data-at": `${i},${j}`, "aria-label": `${asks[i]} asks ${asked[j]}: ${text(v)}`,
          class: v < 0 && "minus", style: `--p:${share}%`
        },
        (v / 10 ** power).toFixed(k ? 1 : 2).replace(/^-(0\.?0*)$/, "$1").replace("-", "−")
      );
    };
    return el("figure", {}, el("h3", { id: `map-${k}` }, title + (power ? `, in units of 1e${power}`.replace("-", "−") : "")), k && !G ? note("Gradients are kept before and after training.") :
      el("div", { class: "scroll narrow" }, el("table", { class: "grid", role: "grid", "aria-labelledby": `map-${k}` }, el("thead", {}, el("tr", {}, el("th", {}, "query (asks) ↓"), el("th", { colspan: asked.length }, "key (is asked) →")), el("tr", {}, el("th", {}), asked.map((x) => el("th", { scope: "col" }, x)))),
        el("tbody", {}, asks.map((x, i) => el("tr", {}, el("th", { scope: "row" }, x), asked.map((_, j) => cell(i, j))))))));
  };
  $("grids").replaceChildren(...KINDS.map(grid));
}
$("grids").addEventListener("keydown", (event) => {
  const cell = event.target.closest("[data-at]");
  if (!cell) return;
  const [i, j] = cell.dataset.at.split(",").map(Number),
    move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (event.key === "Enter") return enter(i, j);
  const next = move && cell.closest("table").querySelector(`[data-at="${i + move[0]},${j + move[1]}"]`);
  if (!next) return;
  event.preventDefault();
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
$("grids").addEventListener(
  "dblclick",
  (event) => { const cell = event.target.closest("[data-at]"); if (cell) enter(...cell.dataset.at.split(",").map(Number)); }
);
function enter(query, key) {
  const fits = (w, names) => names.every((name) => w[name] === mapped[name]);
  const k = [
    ["probe", "layer", "snapshot"], ["probe", "layer"], ["layer"]
  ].map((names) => walks.findIndex((w) => fits(w, names))).find((k) => k >= 0);
  if (k === undefined) return;
  Object.assign(state, { walk: k, head: mapped.head, query, key, step: 0 });
  place = "walk";
  show();
  go(steps.findIndex((step) => step.key === "prime"));
  $("stepper").focus();
}
if ($("grids-help")) {
  $("grids-help").hidden = false;
  maps();
}

// --- small drawings ---
const cosine = tensor("last/cosine");
if (cosine) $("cosine").replaceChildren(picture({
  name: "cosines", rows: cosine.shape[0], cols: cosine.shape[1], at: (r, k) => cosine.at(r, k) / 100
}));
const sizes = tensor("training/sizes");
for (const spark of document.querySelectorAll("[data-spark]")) {
  const [p, measure, low, high] = spark.dataset.spark.split(",").map(Number), n = sizes.shape[0];
  const point = (t) => {
    const v = sizes.at(t, measure, p);
    return `${(1 + 118 * t / Math.max(n - 1, 1)).toFixed(1)},${(24 - 22 * Math.min(Math.max((Math.log10(Math.max(v, 1e-300)) - low) / (high - low), 0), 1)).toFixed(1)}`;
  };
  spark.prepend(svg(
    "svg", { viewBox: "0 0 120 26", width: 120, height: 26, "aria-hidden": "true" },
    svg("polyline", { class: "curve", points: range(n).map(point).join(" ") })
  ));
}
$("download").addEventListener("click", () => {
  const link = el("a", { href: URL.createObjectURL(new Blob([$("data").textContent], { type: "application/json" })), download: "report.json" });
  link.click();
  URL.revokeObjectURL(link.href);
});
$("size").textContent = `${Math.round($("data").textContent.length / 1000)} kB of JSON`;

if (start) {
  $("stepper").hidden = false;
  $("stepper").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, input, dialog")) return;
    if (event.target.closest(".scroll") && ["ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
    if (press(event.key, event.shiftKey)) event.preventDefault();
  });
  for (const one of document.querySelectorAll("[data-key]")) one.addEventListener("click", () => press(one.dataset.key, false));
  for (const kind of ["keydown", "click", "change"]) $("stepper").addEventListener(kind, () => { place = "walk"; }, true);
  const open = () => { fromHash(); show(); };
  addEventListener("hashchange", open);
  open();
  $(place)?.scrollIntoView({ behavior: "instant" });
}
