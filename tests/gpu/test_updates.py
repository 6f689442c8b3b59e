"""Weights are replaced on a GPU while threads call the model."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import aotpack
from tests.gpu.conftest import Built
from tests.gpu.gpus import needs_gpu, used_memory
from tests.gpu.updatable import Net, answer, network

pytestmark = needs_gpu

UPDATES, THREADS = 60, 3


def _mixed() -> Net:
    """That of seed 1 with some of the weights of seed 2."""
    net = network(1)
    state = network(2).state_dict()
    net.load_state_dict({**net.state_dict(), "norm.weight": state["norm.weight"], "scale": state["scale"]})
    return net


def test_calls_use_one_set_of_weights_while_others_are_swapped(built: Built) -> None:
    model = aotpack.load(built("updatable"), device="cuda:0")
    nets = [network(0), network(1), _mixed()]
    partial = {name: _mixed().state_dict()[name] for name in ("norm.weight", "scale")}
    inputs = [torch.randn(size, 6, 10) for size in (1, 5, 64)]
    expected = [np.stack([answer(net, x).numpy() for net in nets]) for x in inputs]
    seen = np.zeros(len(nets), np.int64)
    done = threading.Event()

    def call(number: int) -> int:
        context, calls = model.context(), 0
        while not done.is_set() or calls < 100:
            which = (number + calls) % len(inputs)
            context.reset()
            errors = np.abs(context(inputs[which]).numpy() - expected[which]).max(axis=(1, 2))
            best = int(errors.argmin())
            assert errors[best] < 1e-4, errors
            seen[best] += 1
            calls += 1
        return calls

    def update() -> None:
        try:
            for number in range(UPDATES):
                model.update_weights(network(1).state_dict())
                model.update_weights(partial, partial=True)
                model.reset_weights()
                if number == 5:
                    used.append(used_memory(0))
            used.append(used_memory(0))
        finally:
            done.set()

    used: list[int] = []
    with ThreadPoolExecutor(THREADS + 1) as pool:
        calls = [pool.submit(call, number) for number in range(THREADS)]
        pool.submit(update).result()
        total = sum(each.result() for each in calls)
    assert total >= 100 * THREADS
    assert (seen > 0).all(), seen
    # Sets of weights that no call uses are freed.
    assert used[1] - used[0] <= 4 << 20
    context = model.context()
    for states, partly, net in (
        (network(1).state_dict(), False, nets[1]),
        (partial, True, nets[2]),
    ):
        model.update_weights(states, partial=partly)
        for x in inputs:
            for _ in range(3):
                context.reset()
                np.testing.assert_allclose(context(x).numpy(), answer(net, x).numpy(), rtol=0, atol=1e-4)
    model.reset_weights()
    context.reset()
    np.testing.assert_allclose(context(inputs[0]).numpy(), expected[0][0], rtol=0, atol=1e-4)
    print(f"{total} calls during {3 * UPDATES} updates; by set of weights: {seen.tolist()}")


def test_weights_on_the_device(built: Built) -> None:
    model = aotpack.load(built("updatable"), device="cuda:0")
    net, x = network(3), torch.randn(4, 6, 10)
    model.update_weights({name: model.to_device(value.numpy()) for name, value in net.state_dict().items()})
    np.testing.assert_allclose(model(x).numpy(), answer(net, x).numpy(), rtol=0, atol=1e-4)
