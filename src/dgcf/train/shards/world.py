"""The processes of a training and what they exchange; a single process exchanges nothing.

The processes are started by ``torchrun``. All run the same code in the same order, so each call of a ``World`` is made
by every process, or the others wait for it until the group's timeout.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgcf.errors import ConfigError, DgcfError

T = TypeVar("T")
TIMEOUT_SECONDS = 600.0
"""How long a process waits for another one; ``DGCF_GROUP_TIMEOUT`` sets other seconds."""


class GroupError(DgcfError):
    """Another process of the training ended, failed or does not answer."""

    kind = "group"


class World:
    """A single process: every exchange returns what it was given."""

    rank, size = 0, 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes, validates and reports."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Return whether a flag is true in any process."""
        return flag

    def from_first(self, compute: Callable[[], T]) -> T:
        """Return what ``compute`` returns in the first process; the others do not call it."""
        return compute()

    def require_same(self, what: str, value: str) -> None:
        """Raise ``ConfigError`` in every process unless all have the same value."""


ALONE = World()


class Group(World):
    """Several processes, by ``torch.distributed``."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank, self.size = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def any(self, flag: bool) -> bool:
        count = torch.tensor(int(flag), device=self.device)
        self.add_up(count)
        return bool(count)

    def from_first(self, compute: Callable[[], T]) -> T:
        """Also raises in every process what ``compute`` raises in the first one."""
        message: list[Any] = [None]
        if self.first:
            try:
                message = [(compute(), None)]
            except DgcfError as problem:
                message = [(None, problem)]
        with _explained():
            torch.distributed.broadcast_object_list(message, src=0, device=self.device)
        value, raised = message[0]
        if raised is not None:
            raise _shown(raised, by_first=not self.first)
        return value  # type: ignore[no-any-return]

    def sum(self, x: Tensor) -> Tensor:
        total: Tensor = _Sum.apply(x, self)  # type: ignore[no-untyped-call]
        return total

    def add_up(self, x: Tensor) -> None:
        with _explained():
            torch.distributed.all_reduce(x)

    def below(self, own: Tensor) -> Tensor:
        """Return the rows of all processes, one below the other; all give as many."""
        whole = own.new_empty(self.size * own.shape[0], *own.shape[1:])
        with _explained():
            torch.distributed.all_gather(list(whole.chunk(self.size)), own.contiguous())
        return whole

    def columns(self, own: Tensor, widths: Sequence[int]) -> Tensor:
        whole: Tensor = _Columns.apply(own, self, tuple(widths))  # type: ignore[no-untyped-call]
        return whole

    def side_by_side(self, own: Tensor, widths: Sequence[int]) -> Tensor:
        """Return the columns of all processes; those of a process with fewer are sent with zeros beside them."""
        sent = torch.nn.functional.pad(own, (0, max(widths) - own.shape[1])).contiguous()
        parts = [torch.empty_like(sent) for _ in widths]
        with _explained():
            torch.distributed.all_gather(parts, sent)
        return torch.cat([part[:, :width] for part, width in zip(parts, widths, strict=True)], dim=1)

    def require_same(self, what: str, value: str) -> None:
        values: list[Any] = [None] * self.size
        with _explained():
            torch.distributed.all_gather_object(values, value)
        for rank, other in enumerate(values):
            if other != values[0]:
                problem = ConfigError(
                    f"process {rank} has another {what} ({other[:60]}) than process 0 ({values[0][:60]}); start all "
                    "processes with the same version of dgcf, data and settings."
                )
                raise _shown(problem, by_first=not self.first)


def _shown(problem: DgcfError, *, by_first: bool) -> DgcfError:
    """Mark an error that every process raises, so that only the first one shows it."""
    problem.shown_elsewhere = by_first
    return problem


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, world: Group) -> Tensor:
        total = x.detach().clone()
        world.add_up(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Columns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, world: Group, widths: tuple[int, ...]) -> Tensor:
        ctx.start, ctx.width = sum(widths[: world.rank]), widths[world.rank]
        return world.side_by_side(own.detach(), widths)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.narrow(1, ctx.start, ctx.width).contiguous(), None, None


@contextlib.contextmanager
def joined(device: Callable[[int], torch.device]) -> Iterator[World]:
    """Yield the group of processes that ``torchrun`` started this one in, or ``ALONE`` without torchrun.

    ``device``: the device of a process by its number on the machine.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ALONE
        return
    if not torch.distributed.is_available():
        raise ConfigError("this build of torch has no torch.distributed; install another one, or start one process.")
    place = device(int(os.environ.get("LOCAL_RANK", "0")))
    backend, timeout = "nccl" if place.type == "cuda" else "gloo", timedelta(seconds=_timeout())
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    with _explained():
        store, rank, size = next(rendezvous("env://", timeout=timeout))
        # The store outlives the processes that torchrun starts again: without names of their own they meet old keys.
        attempt = PrefixStore(f"dgcf/{restarts()}", store)
        torch.distributed.init_process_group(backend, timeout=timeout, store=attempt, rank=rank, world_size=size)
    try:
        yield Group(place)
    finally:
        with contextlib.suppress(RuntimeError):
            torch.distributed.destroy_process_group()


def restarts() -> int:
    """Return how often torchrun has started the processes again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _timeout() -> float:
    text = os.environ.get("DGCF_GROUP_TIMEOUT", str(TIMEOUT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"DGCF_GROUP_TIMEOUT is {text[:40]!r}, expected seconds above 0.")
    return seconds


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn an error of the group into one sentence."""
    try:
        yield
    except RuntimeError as problem:
        raise GroupError(
            "another process of the training ended or does not answer; its own message says why. Start the training "
            "again with --resume: it continues from its last checkpoint."
        ) from problem
