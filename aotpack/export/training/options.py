"""Options of a training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TrainingOptions:
    """Options of `aot_export(…, mode="train_step")`.

    Attributes:
        hyperparameters: values of the optimizer's parameter groups, such as `("lr",)` or `("lr", "betas")`, that each
            call passes after the arguments of the loss, or by name: floats and tuples of floats as in the optimizer;
            with several groups a list with one value per group. All others are constants of the archive.
        clip_norm: the greatest norm of all gradients together, as in `torch.nn.utils.clip_grad_norm_`.
        clip_value: the greatest magnitude of an element of a gradient, as in `torch.nn.utils.clip_grad_value_`. It is
            applied before `clip_norm`.
        accumulate: adds the entries `accumulate`, which adds the gradients of a call to those of earlier calls, and
            `apply`, which updates the parameters by them and starts anew. `"mean"`: by the mean over the calls of
            `accumulate`; `"sum"`: by the sum.
        buckets: adds the entries `gradients`, which returns the gradients of a call as flat tensors, and `apply`, which
            updates the parameters by such tensors, after a reduction over several machines. The greatest size of one
            in bytes; True: 25 MiB. With `accumulate`, `gradients` takes the place of the last call of `accumulate`.
        outputs: whether entries that run the model forward and backward return its outputs beside the loss.
    """

    hyperparameters: Sequence[str] = ()
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: Literal["mean", "sum"] | None = None
    buckets: int | bool = False
    outputs: bool = True
