"""The strip stack against the dense formula, for any number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, eye_array
from torch import Tensor

from dgcf.graph import EdgeDrop, build_propagation
from dgcf.graph.kernels.cpu import stack as cpustack
from dgcf.graph.kernels.cpu.stack import Drawing, StripStack, strips_of
from dgcf.graph.operators import stored
from dgcf.graph.operators.stored import StoredMatrix
from tests.graph.conftest import interactions

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@dataclass
class Case:
    """A stack and a batch; ``x`` and ``alpha`` have gradients."""

    matrix: StoredMatrix
    x: Tensor
    alpha: Tensor | None
    drops: tuple[EdgeDrop | None, ...]
    rows: Tensor
    mean: bool

    def strips(self, begun: Drawing | None = None) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = StripStack.apply(  # type: ignore[no-untyped-call]
            self.x, self.alpha, self.matrix, self.drops, self.rows, self.mean, begun
        )
        return found

    def dense(self) -> tuple[Tensor, Tensor]:
        """The formula of the module, with dense matrices and torch's own gradients."""
        layers = [self.x]
        for layer, drop in enumerate(self.drops):
            inner = layers[-1] if self.alpha is None else self.alpha[layer % len(self.alpha)][:, None] * layers[-1]
            layers.append(self._dense_matrix(drop) @ inner)
        final = torch.stack(layers).mean(dim=0) if self.mean else layers[-1]
        return final[self.rows], self.x[self.rows].square().sum() / 2

    def _dense_matrix(self, drop: EdgeDrop | None) -> Tensor:
        values = self.matrix.exact.data
        if drop is not None:
            hashes = self.matrix.entry_hashes.numpy().view(np.uint32)
            values = values * drop.kept(hashes) / (1 - drop.p)
        exact = self.matrix.exact
        dense = csr_array((values, exact.indices, exact.indptr), shape=exact.shape).toarray()
        return torch.from_numpy(dense).to(self.x.dtype)

    def gradients(
        self, outputs: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor], *, keep: bool = False
    ) -> list[Tensor]:
        """Those of x and alpha, of a weighted sum of both outputs."""
        total = sum((out * weight).sum() for out, weight in zip(outputs, weights, strict=True))
        assert isinstance(total, Tensor)
        inputs = [self.x] if self.alpha is None else [self.x, self.alpha]
        return list(torch.autograd.grad(total, inputs, retain_graph=keep))


def stored_matrix(R: csr_array, dtype: torch.dtype = torch.float64) -> StoredMatrix:
    return StoredMatrix(build_propagation(R).stored.exact, dtype, CPU)


def make_case(
    R: csr_array,
    *,
    dim: int,
    layers: int = 3,
    gates: int | None = None,
    p: float = 0.0,
    step: int = 1,
    mean: bool = True,
    n_rows: int = 12,
    dtype: torch.dtype = torch.float64,
) -> Case:
    """``gates``: how many gate vectors, None for none."""
    matrix = stored_matrix(R, dtype)
    n = sum(R.shape)
    generator = torch.Generator().manual_seed(n + dim)
    x = torch.randn(n, dim, dtype=dtype, generator=generator).requires_grad_()
    alpha = None if gates is None else torch.rand(gates, n, dtype=dtype, generator=generator).requires_grad_()
    drops = tuple(EdgeDrop(p, 5, step, layer) if p else None for layer in range(layers))
    return Case(matrix, x, alpha, drops, torch.randint(n, (n_rows,), generator=generator), mean)


def assert_same(case: Case, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    generator = torch.Generator().manual_seed(3)
    shape = (len(case.rows), case.x.shape[1])
    weights = (torch.randn(shape, dtype=case.x.dtype, generator=generator), torch.tensor(0.7))
    found, expected = case.strips(), case.dense()
    for ours, oracle in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, oracle, rtol=rtol, atol=atol)
    ours, oracle = (case.gradients(outputs, weights) for outputs in (found, expected))
    for mine, its in zip(ours, oracle, strict=True):
        torch.testing.assert_close(mine, its, rtol=rtol, atol=atol)


@pytest.fixture(params=[False, True], ids=["whole", "cut"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the last layer is computed for the named rows alone."""
    monkeypatch.setattr(stored, "WORTH_CUTTING", 1.0 if request.param else 0.0)
    return bool(request.param)


@pytest.mark.usefixtures("cut")
@given(
    R=interactions(),
    dim=st.sampled_from([1, 31, 64, 70]),
    mean=st.booleans(),
    gates=st.sampled_from([None, 1, 3]),
    p=st.sampled_from([0.0, 0.4]),
)
def test_values_and_gradients_match_the_dense_formula(
    R: csr_array, dim: int, mean: bool, gates: int | None, p: float
) -> None:
    """With repeated rows, isolated nodes, and widths of one strip, two even ones and an odd one."""
    assert_same(make_case(R, dim=dim, gates=gates, p=p, mean=mean))


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("n_rows", [1, 40])
def test_any_depth_and_batch_size(layers: int, n_rows: int) -> None:
    R = csr_array(np.random.default_rng(1).random((8, 6)) < 0.4)
    assert_same(make_case(R, dim=40, layers=layers, gates=layers, p=0.2, n_rows=n_rows))
    assert_same(make_case(R, dim=40, layers=layers, mean=False, n_rows=n_rows))


@pytest.mark.usefixtures("cut")
def test_huge_graph_draws_one_layer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    R = csr_array(np.random.default_rng(1).random((8, 6)) < 0.4)
    monkeypatch.setattr(cpustack, "HELD", 1)
    assert_same(make_case(R, dim=40, gates=3, p=0.2))


@pytest.mark.usefixtures("cut")
def test_gradcheck() -> None:
    case = make_case(csr_array(np.eye(3, 4) + np.eye(3, 4, 1)), dim=34, gates=3, p=0.3, n_rows=3)

    def outputs(x: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        return Case(case.matrix, x, alpha, case.drops, case.rows, case.mean).strips()

    assert torch.autograd.gradcheck(outputs, (case.x, case.alpha), fast_mode=True)


@pytest.mark.parametrize("output", [0, 1])
def test_one_of_the_outputs_may_be_left_unused(output: int) -> None:
    case = make_case(csr_array(np.eye(3, 4) + np.eye(3, 4, 1)), dim=34, gates=3, p=0.3)
    inputs = [case.x, case.alpha]
    ours = torch.autograd.grad(case.strips()[output].square().sum(), inputs)
    oracle = torch.autograd.grad(case.dense()[output].square().sum(), inputs, allow_unused=True)
    for mine, its in zip(ours, oracle, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if its is None else its)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("dim", [32, 64, 100, 128])
def test_the_number_of_threads_changes_no_bit(dim: int) -> None:
    """In float32, where sums round; on a graph that is large enough for torch to divide its operations."""
    R = csr_array(np.random.default_rng(1).random((900, 700)) < 0.05)
    weights = (torch.randn(500, dim, generator=torch.Generator().manual_seed(0)), torch.tensor(0.7))
    found = []
    for threads in (1, 2, 3, 4, 2):
        torch.set_num_threads(threads)
        case = make_case(R, dim=dim, gates=3, p=0.1, n_rows=500, dtype=torch.float32)
        outputs = case.strips()
        found.append([*outputs, *case.gradients(outputs, weights)])
    for others in found[1:]:
        for first, other in zip(found[0], others, strict=True):
            assert torch.equal(first, other)


@pytest.mark.usefixtures("cut")
def test_overlapping_steps_and_repeated_backward() -> None:
    """The memory of drawn weights is used again, but never while it is still in use."""
    R = csr_array(np.random.default_rng(1).random((8, 6)) < 0.4)
    first, second = (make_case(R, dim=40, gates=3, p=0.4, step=step) for step in (1, 2))
    second.matrix = first.matrix
    expected = [case.gradients(case.dense(), (torch.ones(12, 40), torch.tensor(1.0))) for case in (first, second)]
    begun = Drawing(first.matrix, first.drops, cut=False, adjoint=False)
    outputs = [first.strips(begun), second.strips(begun)]
    for _ in range(2):
        for case, output, oracle in zip((first, second), outputs, expected, strict=True):
            found = case.gradients(output, (torch.ones(12, 40), torch.tensor(1.0)), keep=True)
            for mine, its in zip(found, oracle, strict=True):
                torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


def test_steps_with_and_without_drop_edge_leave_the_matrix_as_it_is() -> None:
    R = csr_array(np.random.default_rng(1).random((8, 6)) < 0.4)
    plain, dropping = make_case(R, dim=8), make_case(R, dim=8, p=0.4)
    dropping.matrix = plain.matrix
    for case in (plain, dropping, plain):
        assert_same(case)


def test_l2_sum_does_not_depend_on_the_number_of_threads() -> None:
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        case = make_case(csr_array(eye_array(40_000)), dim=3, layers=1, n_rows=80_000, dtype=torch.float32)
        found.append(case.strips()[1])
    assert torch.equal(*found)


def test_weights_modified_before_backward_raise() -> None:
    case = make_case(csr_array(np.eye(3, 4)), dim=8)
    final, _ = case.strips()
    with torch.no_grad():
        case.x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        final.sum().backward()  # type: ignore[no-untyped-call]


@given(st.integers(1, 400), st.integers(1, 9))
def test_strips_cover_the_columns_in_whole_blocks_and_evenly(dim: int, threads: int) -> None:
    torch.set_num_threads(threads)
    strips = strips_of(dim)
    assert [column for strip in strips for column in range(strip.start, strip.stop)] == list(range(dim))
    assert all(strip.start % cpustack.BLOCK == 0 for strip in strips)
    blocks = [-(-(strip.stop - strip.start) // cpustack.BLOCK) for strip in strips]
    assert len(strips) == min(threads, -(-dim // cpustack.BLOCK))
    assert max(blocks) - min(blocks) <= 1
