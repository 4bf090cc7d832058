"""Jobs at once: all are run, nothing that they raise is lost, and torch has its threads back."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from dgcf.graph.kernels.cpu.threads import ahead, available, together, undivided


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> int:
    torch.set_num_threads(request.param)
    return int(request.param)


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_every_job_is_run_once_with_its_share_of_the_threads_and_without_gradients(threads: int, n_jobs: int) -> None:
    seen: list[tuple[int, int, bool]] = []
    together([
        partial(lambda job: seen.append((job, torch.get_num_threads(), torch.is_grad_enabled())), job)
        for job in range(n_jobs)
    ])  # fmt: skip
    assert sorted(seen) == [(job, max(1, threads // n_jobs), False) for job in range(n_jobs)]
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_two_jobs_run_at_the_same_time() -> None:
    torch.set_num_threads(2)
    meeting = threading.Barrier(2, timeout=30)
    together([meeting.wait, meeting.wait])


def test_jobs_ahead_begin_before_they_are_joined_unless_there_is_one_thread(threads: int) -> None:
    begun = threading.Event()
    jobs = ahead([begun.set])
    assert begun.wait(timeout=30 if threads > 1 else 0) == (threads > 1)
    jobs.join()
    assert begun.is_set()
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("failing", [0, 1])
def test_exception_of_a_job_is_raised_after_the_others_end(threads: int, failing: int) -> None:
    ended = []

    def job(number: int) -> None:
        if number == failing:
            raise ValueError(f"job {number}")
        ended.append(number)

    with pytest.raises(ValueError, match=f"job {failing}"):
        together([partial(job, number) for number in range(3)])
    if threads > 1:  # the thread in which a job fails takes no other one
        assert sorted(ended) == [number for number in range(3) if number != failing]
    assert torch.get_num_threads() == threads


def test_exception_of_a_helper_thread_is_raised() -> None:
    torch.set_num_threads(2)
    meeting = threading.Barrier(2, timeout=30)

    def job() -> None:
        meeting.wait()
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("in a helper")

    with pytest.raises(ValueError, match="in a helper"):
        together([job, job])


def test_undivided_sets_the_threads_aside_for_the_jobs(threads: int) -> None:
    with undivided(), undivided():
        assert (torch.get_num_threads(), available()) == (1, threads)
        together([lambda: None, lambda: None])
        assert torch.get_num_threads() == 1
    assert (torch.get_num_threads(), available()) == (threads, threads)


def test_forked_process_has_its_own_threads() -> None:
    together([lambda: None, lambda: None])
    child = multiprocessing.get_context("fork").Process(target=together, args=([_nothing, _nothing],))
    child.start()
    child.join(timeout=30)
    alive = child.is_alive()
    child.kill()
    assert not alive


def _nothing() -> None: ...
