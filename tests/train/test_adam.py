"""``CpuAdam`` against ``torch.optim.Adam``."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from dgcf.train.adam import CpuAdam

SHAPES = ((7, 5), (4,), (3, 2))


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def test_the_bits_are_those_of_torch_also_with_parameters_that_have_no_gradient_yet() -> None:
    ours, theirs, generator = parameters(), parameters(), torch.Generator().manual_seed(1)
    one, other = CpuAdam(ours, 0.01), torch.optim.Adam(theirs, lr=0.01, fused=True)
    for step in range(20):
        one.zero_grad()
        other.zero_grad()
        for place in (0, 1, 2) if step >= 5 else (0, 2):
            gradient = torch.randn(SHAPES[place], generator=generator)
            ours[place].grad, theirs[place].grad = gradient, gradient.clone()
        one.step()
        other.step()
        assert (ours[1] not in one.state) == (step < 5)
    for mine, its in zip(ours, theirs, strict=True):
        assert torch.equal(mine, its)
        assert one.state[mine].keys() == other.state[its].keys()
        assert all(torch.equal(value, other.state[its][kind]) for kind, value in one.state[mine].items())


def test_gradients_are_dropped_or_set_to_zero() -> None:
    parameter, *others = parameters()
    adam = CpuAdam([parameter, *others], 0.01)
    parameter.grad = torch.ones(SHAPES[0])
    adam.zero_grad(set_to_none=False)
    assert not parameter.grad.any()
    adam.zero_grad()
    assert parameter.grad is None
    adam.step()
    assert not adam.state


def test_a_training_does_not_import_the_compiler_of_torch() -> None:
    code = (
        "import sys\n"
        "from dgcf.data.synthetic import planted\n"
        "from dgcf.train import resolve, train\n"
        "train(planted(40, 30), resolve('dgcf', preset='plain', settings={'epochs': 1}), device='cpu')\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["False"], done.stderr
