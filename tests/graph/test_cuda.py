"""Triton kernels against float64 references: empty rows, one huge row, one node, widths that are no power of two."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from dgcf.graph import EdgeDrop, Propagation, PropagationSpec, build_propagation
from dgcf.graph.spec import Cross

pytestmark = pytest.mark.gpu
# With TRITON_INTERPRET=1 the same kernels run on the CPU, slowly: for whoever changes them far from a GPU.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not torch.cuda.is_available() and not INTERPRETED:
    pytest.skip("needs a CUDA device", allow_module_level=True)
DEVICE = "cpu" if INTERPRETED else "cuda"

from dgcf.graph.kernels.cuda.sparse import GpuMatrix, collect, layout, readout  # noqa: E402
from dgcf.graph.kernels.cuda.stack import BatchNodes, GpuStack  # noqa: E402

SHAPES = [(300, 200, 0.05, 64), (50, 400, 0.3, 48), (1000, 700, 0.01, 128), (3, 2, 0.9, 16), (1, 1, 1.0, 32)]
SHAPES += [(2000, 100, 0.2, 17), (200, 150, 0.05, 512)]
DROPS = [None, EdgeDrop(0.1, seed=3, step=5, layer=1), EdgeDrop(0.5, seed=3, step=7, layer=0)]
cases = pytest.mark.parametrize(("shape", "drop"), [(shape, drop) for shape in SHAPES for drop in DROPS])


def graph(n_users: int, n_items: int, density: float) -> Propagation:
    """A random graph whose first user has every item, and some of whose users have none."""
    dense = np.random.default_rng(n_users).random((n_users, n_items)) < density
    dense[0] = True
    dense[5:8] = False
    return build_propagation(csr_array(dense.astype(float)), PropagationSpec(epsilon=0.01))


def keys(*drops: EdgeDrop) -> torch.Tensor:
    """(lanes, 2): the words of one draw for each lane."""
    return torch.from_numpy(np.array([drop.keys for drop in drops], dtype=np.uint32).view(np.int32)).to(DEVICE)


def lanes_drop(*drops: EdgeDrop | None) -> EdgeDrop | None:
    """Return the draws of several lanes as one, or None if there are none."""
    given = [drop for drop in drops if drop is not None]
    return EdgeDrop(given[0].p, 0, 0, words=keys(*given)) if given else None


def distance(found: torch.Tensor, reference: torch.Tensor) -> float:
    return float((found.double().cpu() - reference).norm() / reference.norm().clamp_min(1e-30))


def unwritten(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"), device=DEVICE)


def there(tensor: torch.Tensor) -> torch.Tensor:
    """On the device in float32, a copy that shares nothing."""
    return tensor.detach().to(DEVICE, torch.float32, copy=True)


def batch_of(nodes: torch.Tensor) -> BatchNodes:
    ranked, order = nodes.to(DEVICE).sort(stable=True)
    return BatchNodes(nodes.to(DEVICE), ranked, order)


def on_device(P: Propagation) -> GpuMatrix:
    return GpuMatrix(P.to(device=DEVICE).stored)


def lanes_of(drop: EdgeDrop | None) -> list[EdgeDrop | None]:
    """The draws of two lanes that differ in their step."""
    return [drop, None if drop is None else replace(drop, step=drop.step + 1)]


@cases
def test_product_and_adjoint_with_gate_and_drop_edge(shape: tuple[int, int, float, int], drop: EdgeDrop | None) -> None:
    P = graph(*shape[:3])
    gpu, exact = on_device(P), P.to(dtype=torch.float64)
    x = torch.randn(2, P.n_nodes, shape[3], dtype=torch.float64, requires_grad=True)
    alpha = torch.rand(2, P.n_nodes, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(2, P.n_nodes, shape[3], dtype=torch.float64)
    drops = lanes_of(drop)
    y = torch.stack([exact.apply(alpha[lane][:, None] * x[lane], drop=drops[lane]) for lane in (0, 1)])
    y.backward(grad)
    with_gate: dict[str, Any] = {"alpha": there(alpha), "drop": lanes_drop(*drops)}
    inner = there(x)
    found = gpu.product(inner, unwritten(*x.shape), **with_gate)
    assert distance(found, y.detach()) < 1e-6
    dot = unwritten(2, P.n_nodes)
    out = gpu.adjoint(there(grad), unwritten(*x.shape), inner=inner, dot=dot, **with_gate)
    assert distance(out, x.grad) < 1e-6
    assert distance(dot, alpha.grad) < 1e-5
    again = gpu.adjoint(there(grad), unwritten(*x.shape), inner=inner, dot=unwritten(2, P.n_nodes), **with_gate)
    assert torch.equal(out, again), "the same bits from run to run"
    alone = gpu.product(inner[1:], unwritten(*x[1:].shape), alpha=there(alpha)[1:], drop=lanes_drop(drops[1]))
    assert torch.equal(alone[0], found[1]), "the same bits alone as side by side"


@cases
def test_flagged_rows_and_their_adjoint(shape: tuple[int, int, float, int], drop: EdgeDrop | None) -> None:
    P = graph(*shape[:3])
    gpu, exact = on_device(P), P.to(dtype=torch.float64)
    x = torch.randn(P.n_nodes, shape[3], dtype=torch.float64, requires_grad=True)
    nodes = torch.randint(0, P.n_nodes, (37,))
    y = exact.apply(x, drop=drop)
    flags = torch.zeros(1, P.n_nodes, dtype=torch.int32, device=DEVICE).index_fill_(1, nodes.to(DEVICE), 1)
    rows = gpu.product(there(x)[None], unwritten(1, *x.shape), drop=lanes_drop(drop), only=flags)[0]
    assert distance(rows[nodes.to(DEVICE)], y.detach()[nodes]) < 1e-6
    assert torch.isnan(rows[flags[0] == 0]).all(), "the others are left alone"
    grad = torch.randn(37, shape[3], dtype=torch.float64)
    y[nodes].backward(grad)
    whole = torch.zeros_like(x).index_add_(0, nodes, grad).detach()
    batch = batch_of(nodes[None])
    times = torch.bincount(nodes, minlength=P.n_nodes)[:, None]
    straight, bottom = collect(
        there(grad)[None], there(x)[None], batch.order, batch.ranked, scale=0.5, decay=0.1, mean=True
    )
    assert distance(straight[0, nodes.to(DEVICE)], 0.5 * whole[nodes]) < 1e-6
    assert distance(bottom[0, nodes.to(DEVICE)], (0.5 * whole + 0.1 * times * x.detach())[nodes]) < 1e-6
    out = gpu.adjoint(straight, unwritten(1, *x.shape), base=straight, flags=flags, sparse=True, drop=lanes_drop(drop))
    assert distance(out[0], 0.5 * (x.grad + whole)) < 1e-6


@pytest.mark.parametrize("cross", ["filtered", "matrix-free"])
@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("some", [False, True])
def test_gpu_propagation_and_gradient_match_the_cpu(cross: Cross, drop: EdgeDrop | None, some: bool) -> None:
    R = graph(60, 40, 0.1).stored.exact[:60, 60:]
    P = build_propagation(csr_array((R > 0).astype(float)), PropagationSpec(cross=cross, epsilon=0.01))
    rows = torch.tensor([3, 3, 70, 5, 99, 3]) if some else None
    x = torch.randn(100, 20, dtype=torch.float64)
    weights = torch.randn(100 if rows is None else len(rows), 20, dtype=torch.float64)
    found = []
    for dtype, device in ((torch.float64, "cpu"), (torch.float32, DEVICE), (torch.float32, DEVICE)):
        leaf = x.to(device, dtype, copy=True).requires_grad_()
        moved = None if rows is None else rows.to(device)
        y = P.to(device=device, dtype=dtype).apply(leaf, rows=moved, drop=drop)
        (y * weights.to(device, dtype)).sum().backward()
        found.append((y.detach(), leaf.grad))
    for exact, one, two in zip(*found, strict=True):
        assert distance(one, exact) < 1e-6
        assert torch.equal(one, two), "the same bits from run to run"


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("gates", ["per-layer", "shared", "none"])
@pytest.mark.parametrize("mean", [True, False])
def test_the_whole_stack_and_its_gradients(layers: int, gates: str, mean: bool) -> None:
    P = graph(300, 200, 0.05)
    exact = P.to(dtype=torch.float64)
    stack = GpuStack(on_device(P), layers, mean)
    drops = [[EdgeDrop(0.1, seed=1, step=9 + lane, layer=layer) for lane in (0, 1)] for layer in range(layers)]
    x = torch.randn(2, P.n_nodes, 24, dtype=torch.float64, requires_grad=True)
    n_gates = {"per-layer": layers, "shared": 1, "none": 0}[gates]
    alpha = torch.rand(2, n_gates, P.n_nodes, dtype=torch.float64, requires_grad=True)
    nodes = torch.randint(0, P.n_nodes, (2, 50))
    weights, decay = torch.randn(2, 50, 24, dtype=torch.float64), 0.3
    finals = []
    for lane in (0, 1):
        kept = [x[lane]]
        for layer in range(layers):
            inner = kept[-1] if not n_gates else alpha[lane, layer % n_gates][:, None] * kept[-1]
            kept.append(exact.apply(inner, drop=drops[layer][lane]))
        finals.append((sum(kept) / (layers + 1) if mean else kept[-1])[nodes[lane]])
    final = torch.stack(finals)
    squares = torch.stack([x[lane][nodes[lane]].square().sum(dim=1) for lane in (0, 1)])
    ((final * weights).sum() + 0.5 * decay * squares.sum()).backward()
    lane_drops = [lanes_drop(*row) for row in drops]

    def run(lanes: slice) -> tuple[torch.Tensor, ...]:
        gate = there(alpha)[lanes] if n_gates else None
        mine = [None if drop is None else replace(drop, words=drop.words[lanes]) for drop in lane_drops]
        out, norms, passed = stack.forward(there(x)[lanes], gate, batch_of(nodes[lanes]), mine)  # type: ignore[arg-type]
        grads = stack.backward(passed, there(weights)[lanes], decay)
        return out, norms, grads[0], grads[1] if grads[1] is not None else out

    out, norms, grad_x, grad_gate = run(slice(0, 2))
    assert distance(out, final.detach()) < 1e-6
    assert distance(norms, squares.detach()) < 1e-6
    assert distance(grad_x, x.grad) < 1e-6
    if n_gates:
        assert distance(grad_gate, alpha.grad) < 1e-5
    for one, both in zip(run(slice(1, 2)), (out, norms, grad_x, grad_gate), strict=True):
        assert torch.equal(one[0], both[1]), "the same bits alone as side by side"


def test_bfloat16_storage_is_within_its_rounding() -> None:
    P = graph(300, 200, 0.05)
    gpu = on_device(P)
    x = torch.randn(1, P.n_nodes, 64, device=DEVICE)
    batch = batch_of(torch.arange(P.n_nodes)[None])
    full, half = (
        GpuStack(gpu, 3, True, storage).forward(x, None, batch, None)[0] for storage in (torch.float32, torch.bfloat16)
    )
    assert 1e-5 < distance(half, full.double().cpu()) < 1e-2


def test_the_readout_of_the_last_layer_is_that_layer() -> None:
    x, layers = torch.randn(1, 9, 16, device=DEVICE), torch.randn(3, 1, 9, 16, device=DEVICE)
    nodes = torch.tensor([[4, 4, 0]], device=DEVICE)
    assert torch.equal(readout(x, layers, nodes, mean=False)[0], layers[2][:, nodes[0]])


def test_the_layout_covers_every_entry_once() -> None:
    offsets = torch.tensor([0, 0, 5, 5, 300, 428, 428])
    cut = layout(offsets, torch.device("cpu"), segment=128)
    entries = np.concatenate([np.arange(s, e) for s, e in zip(cut.start.tolist(), cut.end.tolist(), strict=True)])
    assert sorted(entries.tolist()) == list(range(428))
    assert sorted(set(cut.row.tolist())) == list(range(6))
    assert cut.long_row.tolist() == [3]
    assert cut.long_first.tolist() == [0, 3]
    lengths = (cut.end - cut.start).tolist()
    assert lengths == sorted(lengths, reverse=True)
