"""Runs archives. Imports only the native module; numpy only if numpy arrays are passed; torch and jax never.

`load` returns a `Model`, which is called like its source model. A call accepts numpy, torch or jax arrays, or any
object with `__dlpack__` or the buffer protocol, in CPU memory or on the device of the model. The results are arrays of
the library of the first array argument, otherwise `Tensor`; on a device, of the first argument that is there, and part
of the work of torch's current stream if that is a torch tensor. Results own their memory and have the strides of the
source model's results. Scalars of the signature are Python ints, floats or bools.
"""

from __future__ import annotations

import os

from aotpack.runtime._native import Runner, Tensor, host_target

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from aotpack.archive.manifest import Manifest
    from aotpack.runtime.cpus import CpuGroup
    from aotpack.runtime.pipeline import Pipeline, Worker
    from aotpack.runtime.profile import ProfileEvent
    from aotpack.runtime.saved import Saved
    from aotpack.spec import Signature, TensorSpec

__all__ = ["Context", "Entry", "Model", "Tensor", "host_target", "load"]


class Entry(Runner):
    """An entry of a model, such as `forward`: call it with the arguments of the source model.

    Created by `Model.entry` and `Context.entry`. Thread-safe: calls may run concurrently; each uses a context of the
    model's pool. Buffers that the model writes to exist once per context: use a `Context` to control which calls share
    them.

    `variants` lists the names of the entry's variants in the order in which they are tried; each call runs the first
    that it matches. `variant` is the variant that the last call of this entry ran in this context; None before the
    first call, and outside of contexts.

    Raises (when called):
        InputError: the structure, dtype, rank, size, value or device of an argument does not match the signature, or no
            variant matches; docs/calls.md lists the messages.
        ExecutionError: the model cannot compute with these values.
        OutOfMemoryError: there is not enough memory.
    """

    @property
    def signature(self) -> Signature:
        """Inputs, outputs, dims and the structure of arguments and result; `str()` returns a readable form."""
        return self.manifest.entries[self.entry_names.index(self.entry_name)].signature

    @property
    def manifest(self) -> Manifest:
        """The archive's manifest."""
        from aotpack.runtime.structure import manifest_of

        return manifest_of(self._manifest)

    def run(
        self, inputs: Sequence[Any] | Mapping[str, Any], *, out: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Runs the entry with flat lists of tensors, without the structure of arguments and result.

        Args:
            inputs: arrays and scalars in the order of `signature.inputs`, or by name.
            out: arrays that receive the outputs, in the order of `signature.outputs` or by name. Each has the dtype and
                shape of the output, is writable, and may have any strides without overlap. For a scalar, an array of
                rank 0 or None; a name may also be omitted.

        Returns:
            The outputs in order: the arrays of `out` if given, and scalars where `out` has None.

        Raises:
            InputError, ExecutionError, OutOfMemoryError: as for a call.
        """
        if not isinstance(inputs, (list, tuple)):
            inputs = _in_order(inputs, self._input_names, "input", ())
        if out is not None and not isinstance(out, (list, tuple)):
            out = _in_order(out, self._output_names, "output", self._number_outputs)
        return self._run(inputs, out)

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, Saved]:
        """Runs the entry and keeps what its backward needs. Only in a context, of an archive that was captured with
        `mode="forward_backward"` (docs/autograd.md).

        Returns:
            What a call returns, and a handle for `backward`. It refers to tensors of the call: do not write to the
            inputs and outputs before the backward.

        Raises:
            InputError: as for a call; or the entry has no backward or is not one of a context.
            ExecutionError, OutOfMemoryError: as for a call.
        """
        from aotpack.runtime import saved

        return saved.forward(self, self._own_context(), args, kwargs)

    def backward(self, saved: Saved, output_gradients: Any) -> Any:
        """The gradients of a forward.

        Args:
            saved: what `forward` of this entry and context returned. It may be used again.
            output_gradients: gradients of the outputs, in the structure of the result; None for an output without a
                gradient, which counts as zeros.

        Returns:
            A dict with `"gradients"`, by parameter, and `"input_gradients"`, by input, if the capture asked for any.

        Raises:
            InputError: the handle is of another context or entry, was released, or the state or the weights were
                loaded after the forward; or the gradients do not match the outputs.
            ExecutionError, OutOfMemoryError: as for a call.
        """
        from aotpack.runtime.saved import backward

        return backward(self, self._own_context(), saved, output_gradients)

    def _own_context(self) -> Context | None:
        """The context that calls run in; None if they take one of the model's pool."""
        found: Context | None = self.__dict__.get("_parent")
        return found

    def _call_structured(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with nested arguments or results, or an invalid call; `Runner` handles all others itself."""
        from aotpack.runtime.structure import flatten, unflatten

        signature = self.signature
        return unflatten(signature.out_spec, self._run(flatten(signature.in_spec, args, kwargs), None))


class Context(Entry):
    """An entry with its own scratch memory, state, thread count and random generator.

    Calls from several threads run one after another. Calls on a stream of the caller's return without waiting: results
    are complete when the stream has run the work, or after `synchronize()`.
    """

    def __init__(
        self,
        parent: Entry,
        *,
        num_threads: int = 0,
        seed: int | None = None,
        stream: int | None = None,
        atomic: bool = False,
        check_finite: bool = False,
    ) -> None:
        super().__init__(parent, num_threads=_checked_threads(num_threads), stream=_stream_handle(stream))
        if atomic:
            self._set_atomic(True)
        if check_finite:
            self._set_check_finite(True)
        if seed is not None:
            self.seed(seed)

    def seed(self, seed: int) -> None:
        """Seeds the model's random operators: the sequence of calls that follows is reproducible."""
        self._set_seed(seed & 0xFFFFFFFFFFFFFFFF)

    def synchronize(self) -> None:
        """Returns when the work of all calls in this context has ended."""
        self._synchronize()

    def set_profiling(self, enabled: bool = True) -> None:
        """Whether calls in this context record when they, their steps and their kernels begin and end. Kernels are
        recorded by modules that were built with `profile=True`.
        """
        self._set_profiling(enabled)

    def profile(self) -> list[ProfileEvent]:
        """The events of the last call, in the order in which they began; at most 1,048,576. None if it has failed, or
        if calls are not profiled.
        """
        from aotpack.runtime.profile import events_of

        return events_of(self._profile())

    def state(self) -> dict[str, Tensor]:
        """Copies of the tensors that the model writes to (caches, counters, running statistics), by name.

        The values are those after the last call in this context, or the initial values.
        """
        return self._get_state()

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Writes the state and that of the random generator to a `.safetensors` file (docs/state.md).

        The file is replaced with a rename when the new one is on the disk: at any moment, whenever the process is
        killed, it is the old file or the new one.

        Raises:
            WeightsNotFoundError: the folder does not exist.
            ArchiveIOError: the file cannot be written; the old file is unchanged.
            WeightsError: the state has a complex128 tensor, for which the format has no name.
        """
        self._save_state_file(_path(path))

    def load_state(self, state: Mapping[str, Any] | str | os.PathLike[str], *, strict: bool = True) -> None:
        """Sets the state from arrays by name, as returned by `state()`, or from a `.safetensors` file.

        A file of `save_state` also sets the random generator, so that the calls that follow return what they would
        have returned in the context that was saved.

        Args:
            state: the arrays or the file; all tensors of the state must be there, and no others.
            strict: with False, tensors that a file does not have keep their values, and tensors of the file that are
                not part of the state are ignored. Only for files.

        Raises:
            WeightsError: a name, dtype or shape does not match, or the file is malformed; the state is unchanged.
            WeightsNotFoundError: the file does not exist.
            ArchiveIOError: the file cannot be read; the state is unchanged.
        """
        if isinstance(state, (str, os.PathLike)):
            return self._load_state_file(_path(state), 0 if strict else 3)  # AOTPACK_STATE_…
        if not strict:
            raise ValueError("strict=False is for files; merge other arrays with those of state()")
        from aotpack.runtime.named_tensors import by_name

        names, arrays = by_name(state)
        self._load_state(names, arrays)

    def reset(self) -> None:
        """Resets the state to its initial values: those of the model's weights at the next call."""
        self._reset()

    def entry(self, name: str, *, input_gradients: Sequence[str] | None = None) -> Entry:
        """Another entry of the model in this context; see `Model.entry`.

        Raises:
            EntryNotFoundError: the archive has no such entry.
        """
        entry = _entry(self, name, input_gradients)
        entry.__dict__["_parent"] = self
        return entry

    def _own_context(self) -> Context:
        return self


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
    ) -> None:
        if verify not in ("code", "full"):
            raise ValueError(f'verify must be "code" or "full", got {verify!r}')
        super().__init__(
            _path(path),
            full=verify == "full",
            copy=copy,
            device=_device_id(device),
            num_threads=_checked_threads(num_threads),
            graphs=_checked_graphs(graphs),
            provider_path=_provider_path(device),
        )

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.manifest.name

    @property
    def device(self) -> str:
        """The device on which the model runs: "cpu" or "cuda:0"."""
        return _device_name(self._device)

    def entry(self, name: str, *, input_gradients: Sequence[str] | None = None) -> Entry:
        """The entry with this name.

        Args:
            name: its name.
            input_gradients: names of inputs: of the entries of a loss that were captured for several sets of inputs,
                the one that returns the gradients of these, in any order (docs/gradients.md).

        Raises:
            EntryNotFoundError: the archive has no such entry; the message lists those that there are.
        """
        return _entry(self, name, input_gradients)

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
    ) -> Context:
        """Creates a context.

        Args:
            num_threads: number of threads per call; None: one per core that is available to this process.
            seed: the seed of random operators; None: a new seed from the operating system.
            stream: the CUDA stream of all calls, as an int such as `torch.cuda.Stream().cuda_stream`; 0 or 1 is the
                legacy default stream and 2 that of the thread.
                The caller keeps it alive and orders other work with it. None: torch's current stream for torch
                tensors of the device, otherwise a stream of the context's own, for which calls wait.
            atomic: a call that fails leaves the state and the random generator as they were before it. While a call
                runs, the tensors that it may write to are in memory twice.
            check_finite: a call fails with an `ExecutionError` if a floating-point output has a NaN or an infinite
                element. Such calls are also atomic.

        Raises:
            InputError: the stream is not one of the model's device.
        """
        return Context(
            self,
            num_threads=num_threads or 0,
            seed=seed,
            stream=stream,
            atomic=atomic,
            check_finite=check_finite,
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


def load(
    path: str | os.PathLike[str],
    *,
    verify: Literal["code", "full"] = "code",
    copy: bool | None = None,
    device: str = "cpu",
    num_threads: int | None = None,
    graphs: int | None = None,
) -> Model:
    """Maps an archive and loads its modules for the best target that this machine supports.

    Args:
        path: the archive.
        verify: "code" checks the structure, the manifest and all executable code against their hashes. "full" checks
            every byte, including the weights, in time proportional to their size.
        copy: False maps the file: all processes share its pages, and it must not be written to while the model is in
            use (replace it by renaming; docs/deployment.md). True reads it into sealed memory of this process. None:
            the environment variable AOTPACK_LOAD, "map" or "copy", decides; the default is "map".
        device: the device on which the model runs: "cpu", or "cuda:0" and the like.
        num_threads: number of threads per call; None: one per core that is available to this process.
        graphs: number of CUDA graphs that a context keeps at most (docs/gpu.md); 0: none; None: 8. Ignored on the CPU.

    Raises:
        ValueError: the path contains a null character, or `device` is not the name of a device.
        ArchiveNotFoundError (a FileNotFoundError): the file does not exist.
        ForeignArchiveError, TruncatedArchiveError, MalformedArchiveError, TamperedArchiveError,
        UnsupportedVersionError: the file is not an archive that this version supports.
        UnsupportedTargetError: the archive has no module for this machine, or it cannot run on `device`.
        MissingImportError: a module imports a function or library that is not available.
        MissingWeightsError: the archive is code-only; `aotpack pack` creates an archive with weights from it.
    """
    return Model(path, verify=verify, copy=copy, device=device, num_threads=num_threads, graphs=graphs)


def _path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"the path must be a string or a path of strings, got {text!r}")
    if "\0" in text:
        raise ValueError(f"the path {text!r} contains a null character")
    return text


# Numbers of kinds of devices in DLPack.
_DEVICE_TYPES = {"cpu": 1, "cuda": 2}


def _device_id(name: str) -> tuple[int, int]:
    """The type and number of a device in DLPack, of names such as "cpu" and "cuda:1"."""
    kind, colon, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    is_number = number.isascii() and number.isdigit() and len(number) <= 6
    if kind not in _DEVICE_TYPES or is_number != bool(colon):
        raise ValueError(f'device must be the name of a device, such as "cpu"; got {name!r}')
    return _DEVICE_TYPES[kind], int(number or 0)


def _device_name(device: tuple[int, int]) -> str:
    kind, number = device
    name = next((name for name, value in _DEVICE_TYPES.items() if value == kind), f"device type {kind}")
    return name if name == "cpu" else f"{name}:{number}"


def _checked_threads(num_threads: int | None) -> int:
    if num_threads is None:
        return 0
    if not 0 <= num_threads <= 1 << 16:
        raise ValueError(f"num_threads must be at least 1, or None for one per core; got {num_threads}")
    return num_threads


def _checked_graphs(graphs: int | None) -> int:
    """As the C interface has it: 0 is the default, and -1 is none."""
    if graphs is None:
        return 0
    if not 0 <= graphs <= 4096:
        raise ValueError(f"graphs must be in [0, 4096], got {graphs}")
    return graphs or -1


def _provider_path(device: str) -> str:
    """Where pip has installed libraries that models on this device may ask for."""
    if device == "cpu":
        return ""
    from aotpack.runtime.providers import installed_folders

    return ":".join(installed_folders())


def _stream_handle(stream: int | None) -> int:
    """As the C interface has it: 0 is none, and 1 the legacy default stream, which CUDA and torch also call 0."""
    return 0 if stream is None else stream or 1


def _entry(parent: Entry, name: str, input_gradients: Sequence[str] | None) -> Entry:
    if input_gradients is not None:
        from aotpack.runtime.joint_entries import entry_for

        name = entry_for(parent.manifest, name, input_gradients)
    return Entry(parent, name)


def _in_order(arrays: Any, names: list[str], what: str, optional: Sequence[str]) -> list[Any]:
    if not hasattr(arrays, "keys"):
        return list(arrays)
    from aotpack.errors import InputError

    for name in names:
        if name not in arrays and name not in optional:
            raise InputError(f"the {what} {name!r} is missing", hint=f"the {what}s are {', '.join(names)}")
    for name in arrays:
        if name not in names:
            raise InputError(f"unknown {what} {name!r}", hint=f"the {what}s are {', '.join(names)}")
    given = {name: arrays[name] for name in arrays}
    return [given.get(name) for name in names]
