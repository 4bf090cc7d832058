"""Adam on a CPU, by torch's fused kernel alone.

``torch.optim.Adam`` computes the same bits, but imports torch's compiler when it is created: up to a second of
processor time, more than all steps of a small training.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class Optimizer(Protocol):
    """What training needs of an optimizer; ``torch.optim.Adam`` is one."""

    state: Any
    defaults: dict[str, Any]

    def zero_grad(self, set_to_none: bool = True) -> None: ...
    def step(self) -> Any: ...


class CpuAdam:
    """Adam (Kingma and Ba, 2015) with the usual β and ε.

    ``state`` is as in ``torch.optim.Adam``: ``step``, ``exp_avg`` and ``exp_avg_sq`` by parameter, empty before its
    first step.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.parameters = list(parameters)
        self.defaults: dict[str, Any] = {"lr": learning_rate, "capturable": False}
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to zero."""
        for parameter in self.parameters:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Take a step with the gradients of the parameters; those without one stay."""
        moved: list[Tensor] = [parameter for parameter in self.parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in moved if parameter.grad is not None]
        if not moved:
            return
        for parameter in moved:
            if not self.state[parameter]:
                moments = {kind: torch.zeros_like(parameter) for kind in ("exp_avg", "exp_avg_sq")}
                self.state[parameter] = {"step": torch.zeros(()), **moments}
        steps, means, squares = (
            [self.state[parameter][kind] for parameter in moved] for kind in ("step", "exp_avg", "exp_avg_sq")
        )
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            moved,
            gradients,
            means,
            squares,
            [],
            steps,
            lr=self.defaults["lr"],
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=0.0,
            eps=EPS,
            amsgrad=False,
            maximize=False,
        )


def adam_for(parameters: Iterable[nn.Parameter], learning_rate: float, device: torch.device) -> Optimizer:
    """Return Adam for parameters on a device.

    On a GPU it counts its steps on the device, so that a recorded step can be replayed without the host.
    """
    if device.type == "cpu":
        return CpuAdam(parameters, learning_rate)
    return torch.optim.Adam(parameters, lr=learning_rate, fused=True, capturable=device.type == "cuda")
