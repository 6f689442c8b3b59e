"""Models: loaded archives."""

from __future__ import annotations

import os

from aotpack.runtime.context import Context
from aotpack.runtime.entry import Entry, entry_of
from aotpack.runtime.options import checked_graphs, checked_threads, device_id, device_name, path_text, provider_path

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from aotpack.runtime.cpus import CpuGroup
    from aotpack.runtime.pipeline import Pipeline, Worker
    from aotpack.spec import TensorSpec


class Model(Entry):
    """A loaded archive. Calling it runs the entry `forward`, or the first entry if there is no `forward`.

    Thread-safe, and immutable except for `update_weights` and `add_lora`; see `Entry`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        verify: Literal["code", "full"] = "code",
        copy: bool | None = None,
        device: str = "cpu",
        num_threads: int | None = None,
        graphs: int | None = None,
        prefetch: bool = False,
    ) -> None:
        if verify not in ("code", "full"):
            raise ValueError(f'verify must be "code" or "full", got {verify!r}')
        super().__init__(
            path_text(path),
            full=verify == "full",
            copy=copy,
            device=device_id(device),
            num_threads=checked_threads(num_threads),
            graphs=checked_graphs(graphs),
            provider_path=provider_path(device),
            prefetch=prefetch,
        )

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.manifest.name

    @property
    def device(self) -> str:
        """The device on which the model runs: "cpu" or "cuda:0"."""
        return device_name(self._device)

    def entry(self, name: str, *, input_gradients: Sequence[str] | None = None) -> Entry:
        """The entry with this name.

        Args:
            name: its name.
            input_gradients: names of inputs: of the entries of a loss that were captured for several sets of inputs,
                the one that returns the gradients of these, in any order (docs/gradients.md).

        Raises:
            EntryNotFoundError: the archive has no such entry; the message lists those that there are.
        """
        return entry_of(self, name, input_gradients)

    @property
    def weights(self) -> dict[str, TensorSpec]:
        """The tensors that `update_weights` accepts, by name; empty if the archive is frozen."""
        from aotpack.runtime.weights import specs

        return specs(self.manifest)

    def update_weights(
        self,
        weights: Mapping[str, Any] | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Context,
        *,
        partial: bool = False,
        base: Literal["current", "archive"] = "current",
        keep_originals: bool = True,
        num_threads: int = 1,
    ) -> None:
        """Replaces all or some weights atomically.

        Other threads may call the model during the update: each call uses either the old weights or the new ones. A
        `Context` keeps its state.

        Args:
            weights: arrays by name, such as a state dict of the source model; or a `.safetensors` file, a
                `….safetensors.index.json`, or a list of such files. Tied weights need only one of their names. The
                arrays are on the CPU or the model's device and may have any strides; they are copied. Of a context of
                any model, such as one that was trained in it, the tensors of its state that have the name of a weight;
                the update is partial then.
            partial: weights that are not given keep their values. Otherwise a missing weight is an error.
            base: the values of weights that are not given: "current", those of the last update, or "archive".
            keep_originals: keep a copy of weights from which others are computed (folded and packed weights), so that a
                later partial update may omit them. With False the model needs less memory, and a later partial update
                is rejected if it needs such a weight and does not contain it.
            num_threads: number of threads that compute derived weights.

        Raises:
            WeightsError: the archive is frozen, or a tensor is missing, unknown, or has the wrong dtype or shape. The
                message lists all errors. Nothing has changed.
            WeightsFileError, WeightsNotFoundError (both WeightsError): a file is malformed or does not exist.
            ExecutionError, OutOfMemoryError: derived weights could not be computed. Nothing has changed.
        """
        from aotpack.runtime.weights import update

        update(self, weights, partial=partial, base=base, keep_originals=keep_originals, num_threads=num_threads)

    def add_lora(
        self,
        adapter: Mapping[str, Any] | str | os.PathLike[str],
        *,
        scale: float | None = None,
        fan_in_fan_out: bool | None = None,
        base: Literal["current", "archive"] = "current",
        num_threads: int = 1,
    ) -> None:
        """Merges a LoRA adapter into the weights: adds `scale * lora_B @ lora_A` to each weight that it changes.

        This is one atomic partial update. Use `base="archive"` to replace one adapter with another.

        Args:
            adapter: an adapter saved by PEFT: a directory with `adapter_model.safetensors` and `adapter_config.json`,
                or the file in it; or arrays by PEFT's names (`base_model.model.<module>.lora_A.weight`, …; the prefix
                is optional). Tensors that are not factors (`modules_to_save`) replace the weights of their names.
            scale: None: from `adapter_config.json`, `lora_alpha / r` as modified by its other fields.
            fan_in_fan_out: whether weights are [in, out], as in GPT-2. None: from `adapter_config.json`, or False.
            base: the weights to which the adapter is added: "current", those of the last update, or "archive".
            num_threads: number of threads that compute derived weights.

        Raises:
            WeightsError: as for `update_weights`; or a tensor or setting of the adapter is not supported, such as
                DoRA. Nothing has changed.
            WeightsFileError, WeightsNotFoundError, ExecutionError, OutOfMemoryError: as for `update_weights`.
        """
        from aotpack.runtime.weights import add_lora

        add_lora(self, adapter, scale=scale, fan_in_fan_out=fan_in_fan_out, base=base, num_threads=num_threads)

    def reset_weights(self) -> None:
        """Restores the weights of the archive.

        Raises:
            WeightsError: the archive is frozen.
        """
        self._reset_weights()

    @property
    def weight_generation(self) -> int:
        """The number of weight updates since loading."""
        return self._weight_generation

    def context(
        self,
        *,
        num_threads: int | None = None,
        seed: int | None = None,
        stream: int | None = None,
        atomic: bool = False,
        check_finite: bool = False,
        cpus: CpuGroup | None = None,
    ) -> Context:
        """Creates a context.

        Args:
            num_threads: number of threads per call; None: one per core that is available to this process, or per CPU of
                `cpus`.
            seed: the seed of random operators; None: a new seed from the operating system.
            stream: the CUDA stream of all calls, as an int such as `torch.cuda.Stream().cuda_stream`; 0 or 1 is the
                legacy default stream and 2 that of the thread.
                The caller keeps it alive and orders other work with it. None: torch's current stream for torch
                tensors of the device, otherwise a stream of the context's own, for which calls wait.
            atomic: a call that fails leaves the state and the random generator as they were before it. While a call
                runs, the tensors that it may write to are in memory twice.
            check_finite: a call fails with an `ExecutionError` if a floating-point output has a NaN or an infinite
                element. Such calls are also atomic.
            cpus: the CPUs that calls run on, such as "0-3,8", so that contexts do not share cores. The thread that
                calls is bound to them during a call. Models on the CPU only. None: the CPUs of the thread that calls.

        Raises:
            InputError: the stream is not one of the model's device, or this process may not use one of the CPUs.
            ValueError: `cpus` is not a group of CPUs.
        """
        return Context(
            self,
            num_threads=num_threads or 0,
            seed=seed,
            stream=stream,
            atomic=atomic,
            check_finite=check_finite,
            cpus=cpus,
        )

    def pipeline(
        self,
        entry: str | None = None,
        *,
        groups: Sequence[CpuGroup] | None = None,
        workers: Sequence[Worker] | None = None,
        max_in_flight: int | None = None,
        seed: int | None = None,
    ) -> Pipeline:
        """Creates a pipeline, which runs the stages of an entry on threads of its own (docs/partition.md).

        Args:
            entry: the name of the entry; None: the one that a call of the model runs.
            groups: the CPUs of each stage in order, such as `["0-3", "4-7"]`; with twice as many groups, of two copies
                of all stages, and so on. `aotpack.runtime.cpus` divides the CPUs of the process and lists NUMA nodes.
            workers: the threads, instead of `groups`: at least one `aotpack.runtime.pipeline.Worker` for each stage.
                None of both: one for each stage, which divide the CPUs of the calling thread evenly.
            max_in_flight: how many calls are under way at most; None: two per worker.
            seed: of the random operators; None: a new seed from the operating system.

        Raises:
            InputError: the workers do not match the stages, CPUs are not available to this process, a stage of several
                workers uses the model's state, or the model is not on the CPU.
            EntryNotFoundError: the archive has no entry with this name.
        """
        from aotpack.runtime.pipeline import Pipeline

        runner = self.entry(entry) if entry is not None else self
        return Pipeline(
            runner, runner.signature, groups=groups, workers=workers, max_in_flight=max_in_flight, seed=seed
        )

    def __repr__(self) -> str:
        return f"aotpack.Model({self.path!r}, target={self.target!r}, entries={self.entry_names})"
