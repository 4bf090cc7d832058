"""Triton kernels against float64 references: empty rows, one huge row, one node, widths that are no power of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from dgcf.graph import EdgeDrop, Propagation, PropagationSpec, build_propagation

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from dgcf.graph.gpu import GpuMatrix, collect, layout  # noqa: E402
from dgcf.graph.gpustack import DeviceDrop, FusedStack  # noqa: E402

SHAPES = [(300, 200, 0.05, 64), (50, 400, 0.3, 48), (1000, 700, 0.01, 128), (3, 2, 0.9, 16), (1, 1, 1.0, 32)]
SHAPES += [(2000, 100, 0.2, 17), (200, 150, 0.05, 512)]
DROPS = [None, EdgeDrop(0.1, seed=3, step=5, layer=1), EdgeDrop(0.5, seed=3, step=7, layer=0, kind="edges")]
cases = pytest.mark.parametrize(("shape", "drop"), [(shape, drop) for shape in SHAPES for drop in DROPS])


def graph(n_users: int, n_items: int, density: float) -> Propagation:
    """A random graph whose first user has every item, and some of whose users have none."""
    dense = np.random.default_rng(n_users).random((n_users, n_items)) < density
    dense[0] = True
    dense[5:8] = False
    return build_propagation(csr_array(dense.astype(float)), PropagationSpec(epsilon=0.01))


def words(*drops: EdgeDrop) -> torch.Tensor:
    keys = np.array([drop.keys for drop in drops], dtype=np.uint32).view(np.int32)
    return torch.from_numpy(keys).cuda()


def draw(drop: EdgeDrop | None) -> dict[str, Any]:
    return {} if drop is None else {"keys": words(drop)[0], "limit": drop.limit, "kind": drop.kind}


def distance(found: torch.Tensor, reference: torch.Tensor) -> float:
    return float((found.double().cpu() - reference).norm() / reference.norm().clamp_min(1e-30))


def unwritten(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"), device="cuda")


@cases
def test_product_and_adjoint_with_gate_and_drop_edge(shape: tuple[int, int, float, int], drop: EdgeDrop | None) -> None:
    P = graph(*shape[:3])
    gpu, exact = GpuMatrix(P.to(device="cuda").operator.matrix), P.to(dtype=torch.float64)
    x = torch.randn(P.n_nodes, shape[3], dtype=torch.float64, requires_grad=True)
    alpha = torch.rand(P.n_nodes, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(P.n_nodes, shape[3], dtype=torch.float64)
    y = exact.apply(alpha[:, None] * x, drop=drop)
    y.backward(grad)
    on_gpu = {"alpha": alpha.detach().float().cuda(), **draw(drop)}
    inner = x.detach().float().cuda()
    assert distance(gpu.product(inner, unwritten(*x.shape), **on_gpu), y.detach()) < 1e-6
    dot = unwritten(P.n_nodes)
    out = gpu.adjoint(grad.float().cuda(), unwritten(*x.shape), inner=inner, dot=dot, **on_gpu)
    assert distance(out, x.grad) < 1e-6
    assert distance(dot, alpha.grad) < 1e-5
    again = gpu.adjoint(grad.float().cuda(), unwritten(*x.shape), inner=inner, dot=unwritten(P.n_nodes), **on_gpu)
    assert torch.equal(out, again), "the same bits from run to run"


@cases
def test_chosen_rows_and_their_adjoint(shape: tuple[int, int, float, int], drop: EdgeDrop | None) -> None:
    P = graph(*shape[:3])
    gpu, exact = GpuMatrix(P.to(device="cuda").operator.matrix), P.to(dtype=torch.float64)
    x = torch.randn(P.n_nodes, shape[3], dtype=torch.float64, requires_grad=True)
    rows = torch.randint(0, P.n_nodes, (37,))
    y = exact.apply(x, drop=drop)
    assert distance(gpu.rows(x.detach().float().cuda(), rows.cuda(), **draw(drop)), y.detach()[rows]) < 1e-6
    grad = torch.randn(37, shape[3], dtype=torch.float64)
    y[rows].backward(grad)
    ranked, order = rows.cuda().sort(stable=True)
    summed = collect(grad.float().cuda(), order, ranked, unwritten(*x.shape))
    whole = torch.zeros_like(x).index_add_(0, rows, grad)
    assert distance(summed[rows.cuda()], whole.detach()[rows]) < 1e-6
    flags = torch.zeros(P.n_nodes, dtype=torch.int32, device="cuda").index_fill_(0, rows.cuda(), 1)
    out = gpu.adjoint(summed, unwritten(*x.shape), base=summed, flags=flags, sparse=True, **draw(drop))
    assert distance(out, x.grad + whole.detach()) < 1e-6


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("gates", ["per-layer", "shared", "none"])
@pytest.mark.parametrize("mean", [True, False])
def test_the_whole_stack_and_its_gradients(layers: int, gates: str, mean: bool) -> None:
    P = graph(300, 200, 0.05)
    exact, gpu = P.to(dtype=torch.float64), GpuMatrix(P.to(device="cuda").operator.matrix)
    drops = [EdgeDrop(0.1, seed=1, step=9, layer=layer) for layer in range(layers)]
    x = torch.randn(P.n_nodes, 24, dtype=torch.float64, requires_grad=True)
    n_gates = {"per-layer": layers, "shared": 1, "none": 0}[gates]
    logits = torch.randn(n_gates, P.n_nodes, dtype=torch.float64, requires_grad=True)
    rows = torch.randint(0, P.n_nodes, (50,))
    weights = torch.randn(2, 50, 24, dtype=torch.float64)
    kept = [x]
    for layer in range(layers):
        inner = kept[-1] if not n_gates else torch.sigmoid(logits[layer % n_gates])[:, None] * kept[-1]
        kept.append(exact.apply(inner, drop=drops[layer]))
    final = (sum(kept) / (layers + 1) if mean else kept[-1])[rows]
    (final * weights[0] + x[rows] * weights[1]).sum().backward()

    def run() -> tuple[torch.Tensor, ...]:
        mine, gate = x.detach().float().cuda().requires_grad_(), logits.detach().float().cuda().requires_grad_()
        alpha = torch.sigmoid(gate) if n_gates else None
        drop = DeviceDrop(words(*drops), drops[0].limit)
        out, ego = FusedStack.apply(mine, alpha, gpu, layers, rows.cuda(), drop, mean, torch.float32)
        (out * weights[0].float().cuda() + ego * weights[1].float().cuda()).sum().backward()
        return out.detach(), mine.grad, gate.grad

    out, grad_x, grad_gate = run()
    assert distance(out, final.detach()) < 1e-6
    assert distance(grad_x, x.grad) < 1e-6
    if n_gates:
        assert distance(grad_gate, logits.grad) < 1e-5
        assert torch.equal(grad_gate, run()[2])
    assert torch.equal(grad_x, run()[1])


def test_bfloat16_storage_is_within_its_rounding() -> None:
    P = graph(300, 200, 0.05)
    gpu = GpuMatrix(P.to(device="cuda").operator.matrix)
    x = torch.randn(P.n_nodes, 64, device="cuda")
    rows = torch.arange(P.n_nodes, device="cuda")
    full, _ = FusedStack.apply(x, None, gpu, 3, rows, None, True, torch.float32)
    half, _ = FusedStack.apply(x, None, gpu, 3, rows, None, True, torch.bfloat16)
    assert 1e-5 < distance(half, full.double().cpu()) < 1e-2


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
