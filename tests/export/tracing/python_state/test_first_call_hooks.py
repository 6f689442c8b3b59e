"""What a first call installs: hooks, as transformers installs those that collect hidden states, and ordered dicts."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack.errors import CaptureError
from aotpack.export import aot_export

pytestmark = pytest.mark.torch


class Collecting(nn.Module):
    """Its first call installs a hook, after which an attribute says so."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.sub = nn.Linear(3, 3)
        self.kind = kind
        self.installed = False
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if not self.installed:
            self._install()
            self.installed = True
        self.seen.clear()
        self.sub(x)
        return torch.stack(self.seen)

    def _install(self) -> None:
        if self.kind == "before":
            self.sub.register_forward_pre_hook(lambda module, args: self.seen.append(args[0]))
        elif self.kind == "with kwargs":
            self.sub.register_forward_hook(lambda module, args, kwargs, y: self.seen.append(y), with_kwargs=True)
        else:
            self.sub.register_forward_hook(lambda module, args, y: self.seen.append(y))


@pytest.mark.parametrize("kind", ["before", "with kwargs", "behind"])
def test_a_hook_is_installed_once(kind: str) -> None:
    model, x = Collecting(kind), torch.randn(2, 3)
    for _ in range(2):
        program = aot_export(model, (x,))
        tables: Any = (model.sub._forward_hooks, model.sub._forward_pre_hooks, model.sub._forward_hooks_with_kwargs)
        assert not model.installed and not any(tables)
    with torch.no_grad():
        (result,) = program.graph_module(x)
        torch.testing.assert_close(result, model(x))
    assert result.shape == (1, 2, 3)
    # Also when it is there already.
    torch.testing.assert_close(aot_export(model, (x,)).graph_module(x)[0], result)


def test_a_hook_more_in_each_call_is_an_error() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sub = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.sub.register_forward_hook(lambda module, args, y: y + 1)
            return self.sub(x)  # type: ignore[no-any-return]

    model = Growing()
    with pytest.raises(CaptureError, match=r"a later call depends on a value that an earlier call left in self\.sub"):
        aot_export(model, (torch.randn(2, 3),))
    assert not model.sub._forward_hooks


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict])
def test_dicts_of_all_kinds_are_put_back(kind: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scratch = kind(None, {"a": start}) if kind is collections.defaultdict else kind(a=start, b=start)

        def forward(self, x: Tensor) -> Tensor:
            self.scratch.pop("b", None)
            self.scratch["x"] = x * 2
            self.scratch["a"] = x
            return self.scratch["x"] + self.scratch["a"]

    start = torch.zeros(3)
    model = Model()
    before = dict(model.scratch)
    program = aot_export(model, (torch.ones(3),))
    assert program.graph_module(torch.ones(3))[0].tolist() == [3, 3, 3]
    assert dict(model.scratch.items()) == before and list(model.scratch) == list(before)
