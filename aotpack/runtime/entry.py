"""Entries of an archive, which are called."""

from __future__ import annotations

from aotpack.runtime._native import Runner
from aotpack.runtime.options import in_order

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from aotpack.archive.manifest import Manifest
    from aotpack.runtime.saved import Saved
    from aotpack.spec import Signature


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
            inputs = in_order(inputs, self._input_names, "input", ())
        if out is not None and not isinstance(out, (list, tuple)):
            out = in_order(out, self._output_names, "output", self._number_outputs)
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
        from aotpack.runtime.saved import forward

        return forward(self, self._own_context(), args, kwargs)

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

    def _own_context(self) -> Entry | None:
        """The context that calls run in; None if they take one of the model's pool."""
        found: Entry | None = self.__dict__.get("_parent")
        return found

    def _call_structured(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with nested arguments or results, or an invalid call; `Runner` handles all others itself."""
        from aotpack.runtime.structure import flatten, unflatten

        signature = self.signature
        return unflatten(signature.out_spec, self._run(flatten(signature.in_spec, args, kwargs), None))


def entry_of(parent: Entry, name: str, input_gradients: Sequence[str] | None) -> Entry:
    """The entry of this name, or of this name and set of inputs (`aot_export(…, input_gradients=…)`)."""
    if input_gradients is not None:
        from aotpack.runtime.joint_entries import entry_for

        name = entry_for(parent.manifest, name, input_gradients)
    return Entry(parent, name)
