"""Runs archives. Imports nothing but the native module: numpy only when numpy arrays come in, torch and jax never.

`load` gives a `Model`, which is called like the model that it was built from. A call takes numpy, torch or jax arrays,
or anything with `__dlpack__` or the buffer protocol, in CPU memory; the result comes as arrays of the library of the
first argument that has one, else as `Tensor`. Results own their memory and have the strides that the model gave them.
Where the signature has a number, a call takes and returns a Python int, float or bool.
"""

from __future__ import annotations

import os

from aotpack.runtime._native import Runner, Tensor, host_target

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from aotpack.archive.manifest import Manifest
    from aotpack.spec import Signature, TensorSpec

__all__ = ["Context", "Entry", "Model", "Tensor", "host_target", "load"]


class Entry(Runner):
    """An entry of a model, such as `forward`: call it with the arguments of the source model.

    Made by `Model.entry` and `Context.entry`. Thread-safe: calls may run at once; each has a context of the model's
    pool for its time. A model that writes to its own buffers has a copy of them per context: hold a `Context` to keep
    them apart, or together.

    `variants` names the entry's variants in the order in which they are tried; each call takes the first that fits.
    `variant` is the one that the last call of this entry took in this context; None before it, and outside of contexts.

    Raises (when called):
        InputError: an argument's structure, dtype, rank, size, value or device is not what the signature says, or no
            variant fits; docs/calls.md lists what can be wrong, and the messages.
        ExecutionError: the model cannot compute with these values.
        OutOfMemoryError: memory ran out.
    """

    @property
    def signature(self) -> Signature:
        """Inputs, outputs, dims and how they sit in arguments and result; `str()` of it is for people."""
        return self.manifest.entries[self.entry_names.index(self.entry_name)].signature

    @property
    def manifest(self) -> Manifest:
        """The archive's manifest."""
        from aotpack.runtime.structure import manifest_of

        return manifest_of(self._manifest)

    def run(
        self, inputs: Sequence[Any] | Mapping[str, Any], *, out: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Runs the entry on its tensors alone, without the structure around them.

        Args:
            inputs: the arrays and numbers in the order of `signature.inputs`, or by their names.
            out: arrays to write the outputs into, in the order of `signature.outputs` or by their names. Each has the
                dtype and shape of the output, is writable, and may have any strides without overlap. For a number, an
                array of rank 0; or None, also by leaving its name out.

        Returns:
            The outputs in order; the arrays of `out` when given, and a number where that has None.

        Raises:
            InputError, ExecutionError, OutOfMemoryError: as for a call.
        """
        if not isinstance(inputs, (list, tuple)):
            inputs = _in_order(inputs, self._input_names, "input", ())
        if out is not None and not isinstance(out, (list, tuple)):
            out = _in_order(out, self._output_names, "output", self._number_outputs)
        return self._run(inputs, out)

    def _call_structured(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose arguments or result are nested, or that is wrong; `Runner` does the others by itself."""
        from aotpack.runtime.structure import flatten, unflatten

        signature = self.signature
        return unflatten(signature.out_spec, self._run(flatten(signature.in_spec, args, kwargs), None))


class Context(Entry):
    """An entry together with its own scratch memory, buffers that the model writes to, thread count and random state.

    Calls from several threads wait for each other.
    """

    def __init__(self, parent: Entry, *, num_threads: int = 0, seed: int | None = None) -> None:
        super().__init__(parent, num_threads=_checked_threads(num_threads))
        if seed is not None:
            self.seed(seed)

    def seed(self, seed: int) -> None:
        """Seeds the model's random operators: the calls that follow repeat."""
        self._set_seed(seed & 0xFFFFFFFFFFFFFFFF)

    def state(self) -> dict[str, Tensor]:
        """Copies of the tensors that the model writes to (caches, counters, running statistics), by name.

        They have the values that the last call in this context left, or the initial ones.
        """
        return self._get_state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Replaces the state by arrays like those of `state()`; all must be given.

        Raises:
            WeightsError: names, dtypes or shapes do not fit; the state is as it was.
        """
        from aotpack.runtime.named_tensors import by_name

        names, arrays = by_name(state)
        self._load_state(names, arrays)

    def reset(self) -> None:
        """Gives the state the initial values, those of the model's weights at the next call."""
        self._reset()

    def entry(self, name: str) -> Entry:
        """Another entry of the model in this context.

        Raises:
            EntryNotFoundError: the archive has no such entry.
        """
        return Entry(self, name)


class Model(Entry):
    """A loaded archive; calling it runs the entry `forward`, or the first when there is none of that name.

    Thread-safe, and immutable but for `update_weights`; see `Entry`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        verify: Literal["code", "full"] = "code",
        copy: bool | None = None,
        num_threads: int | None = None,
    ) -> None:
        if verify not in ("code", "full"):
            raise ValueError(f'verify must be "code" or "full", got {verify!r}')
        super().__init__(_path(path), full=verify == "full", copy=copy, num_threads=_checked_threads(num_threads))

    @property
    def name(self) -> str:
        """The model's name, as it was built."""
        return self.manifest.name

    def entry(self, name: str) -> Entry:
        """The entry of that name.

        Raises:
            EntryNotFoundError: the archive has no such entry.
        """
        return Entry(self, name)

    @property
    def weights(self) -> dict[str, TensorSpec]:
        """The tensors that `update_weights` takes, by name, with dtype and shape; empty when the archive is frozen."""
        from aotpack.runtime.weights import specs

        return specs(self.manifest)

    def update_weights(
        self,
        weights: Mapping[str, Any] | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        partial: bool = False,
        base: Literal["current", "archive"] = "current",
        keep_originals: bool = True,
        num_threads: int = 1,
    ) -> None:
        """Replaces the weights, all or some of them, at once. Other threads may go on calling: each call sees either
        the old weights or the new ones. A `Context` keeps its state.

        Args:
            weights: arrays by name, such as a state dict of the source model; or a `.safetensors` file, the
                `….safetensors.index.json` of several, or a list of such files. Of the names of tied weights one will
                do. The arrays may have any strides; they are copied.
            partial: weights that are not given keep their values. Otherwise a missing weight is an error.
            base: which values these are: "current", those of the last update, or "archive".
            keep_originals: keeps a copy of weights that are only needed to compute others (folded and packed ones),
                so that a later partial update can do without them. With False the model needs less memory, and a
                later partial update is refused when it needs one of these weights and does not give it.
            num_threads: threads that compute what is derived from the weights.

        Raises:
            WeightsError: the archive is frozen, or a tensor is missing, unknown, or of another dtype or shape; the
                message lists everything. Nothing has changed.
            WeightsFileError, WeightsNotFoundError (both WeightsError): a file is malformed, or not there.
            ExecutionError, OutOfMemoryError: what is derived from the weights could not be computed. Nothing has
                changed.
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
        """Merges a LoRA adapter into the weights: adds `scale * lora_B @ lora_A` to each weight that it changes. It is
        a partial update, at once for all weights. `base="archive"` replaces an adapter by another.

        Args:
            adapter: what PEFT saves: a folder with `adapter_model.safetensors` and `adapter_config.json`, or the file
                in it; or arrays by PEFT's names (`base_model.model.<module>.lora_A.weight`, …; the prefix may be
                absent). Tensors that are no factors (`modules_to_save`) replace the weights of their names.
            scale: None: as `adapter_config.json` says, `lora_alpha / r` or what its other fields make of it.
            fan_in_fan_out: whether weights are [in, out], as in GPT-2. None: as `adapter_config.json` says, or False.
            base: the weights to which the adapter is added: "current", those of the last update, or "archive".
            num_threads: threads that compute what is derived from the weights.

        Raises:
            WeightsError: as for `update_weights`; or a tensor or setting of the adapter is not plain LoRA, such as
                DoRA's. Nothing has changed.
            WeightsFileError, WeightsNotFoundError, ExecutionError, OutOfMemoryError: as for `update_weights`.
        """
        from aotpack.runtime.weights import add_lora

        add_lora(self, adapter, scale=scale, fan_in_fan_out=fan_in_fan_out, base=base, num_threads=num_threads)

    def reset_weights(self) -> None:
        """Goes back to the archive's own weights.

        Raises:
            WeightsError: the archive is frozen.
        """
        self._reset_weights()

    @property
    def weight_generation(self) -> int:
        """How often the weights have been replaced since loading."""
        return self._weight_generation

    def context(self, *, num_threads: int | None = None, seed: int | None = None) -> Context:
        """A context of one's own.

        Args:
            num_threads: threads inside one call; None: one per core that this process may use.
            seed: for the random operators; None: a fresh one.
        """
        return Context(self, num_threads=num_threads or 0, seed=seed)

    def __repr__(self) -> str:
        return f"aotpack.Model({self.path!r}, target={self.target!r}, entries={self.entry_names})"


def load(
    path: str | os.PathLike[str],
    *,
    verify: Literal["code", "full"] = "code",
    copy: bool | None = None,
    num_threads: int | None = None,
) -> Model:
    """Maps an archive and loads the modules in it that suit this machine best.

    Args:
        path: the archive.
        verify: "code" checks the structure, the manifest and all that is executable against their hashes; "full" checks
            every byte, the weights too, which takes time in proportion to their size.
        copy: False maps the file: its pages are shared by all processes, and it must not be written to while the model
            is in use (replace it by a rename; docs/deployment.md). True reads it into memory of this process, which
            nothing can change. None: as the environment variable AOTPACK_LOAD says, "map" or "copy"; False without it.
        num_threads: threads inside one call; None: one per core that this process may use.

    Raises:
        ValueError: the path has a null character.
        ArchiveNotFoundError (a FileNotFoundError): there is no such file.
        ForeignArchiveError, TruncatedArchiveError, MalformedArchiveError, TamperedArchiveError,
        UnsupportedVersionError: it is not an archive that this version can use.
        UnsupportedTargetError: it has no module for this machine.
        MissingImportError: a module needs something that this runtime lacks.
    """
    return Model(path, verify=verify, copy=copy, num_threads=num_threads)


def _path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"the path must be a string or a path of strings, got {text!r}")
    if "\0" in text:
        raise ValueError(f"the path {text!r} has a null character")
    return text


def _checked_threads(num_threads: int | None) -> int:
    if num_threads is None:
        return 0
    if not 0 <= num_threads <= 1 << 16:
        raise ValueError(f"num_threads must be at least 1, or None for one per core; got {num_threads}")
    return num_threads


def _in_order(arrays: Any, names: list[str], what: str, optional: Sequence[str]) -> list[Any]:
    if not hasattr(arrays, "keys"):
        return list(arrays)
    from aotpack.errors import InputError

    for name in names:
        if name not in arrays and name not in optional:
            raise InputError(f"the {what} {name!r} is missing", hint=f"the {what}s are {', '.join(names)}")
    for name in arrays:
        if name not in names:
            raise InputError(f"there is no {what} {name!r}", hint=f"the {what}s are {', '.join(names)}")
    given = {name: arrays[name] for name in arrays}
    return [given.get(name) for name in names]
