"""What of the user's goes into an archive, and what is refused while it is built."""

from __future__ import annotations

import importlib.util
import inspect
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import aotpack
from aotpack.errors import BuildError, CompileError, UnsupportedOperatorError
from aotpack.export import BuildReport, aot_export, build_archive, custom_kernel, kernel_include_dir
from aotpack.export.backends.cpu import toolchain
from aotpack.export.backends.cpu.custom_glue import glue, shim_name
from aotpack.export.custom_ops.kernels import custom_kernels_restored
from aotpack.export.driver.options import BuildOptions
from aotpack.export.torch_compat.inductor.wrapper import _literal
from aotpack.targets import Target
from tests.support.building import manifest_of
from tests.support.torch_version import VERSION

OPERATOR = "aotpack_builds::scale"
_library = torch.library.Library("aotpack_builds", "DEF")


def define(schema: str) -> torch._ops.OpOverload:
    name = schema.partition("(")[0]
    _library.define(schema)
    return getattr(torch.ops.aotpack_builds, name.partition(".")[0])  # type: ignore[no-any-return]


define("scale(Tensor x, float factor) -> Tensor")
_library.impl("scale", lambda x, factor: x * factor, "CompositeExplicitAutograd")
# As if C++ had registered it: operators whose kernel is Python are traced through.
torch.library._impls.discard("aotpack_builds/scale/CompositeExplicitAutograd")
torch.library.register_fake(OPERATOR, lambda x, factor: x.new_empty(x.shape), lib=_library)

HEAD = """
#include "aotpack/operator.h"
using namespace aotpack::op;
"""
SCALE = (
    HEAD
    + """
#include "factor.h"
Tensor scale(Call& call, const Tensor& x, double factor) {
  const Tensor y = call.empty(x.sizes(), x.dtype());
  const auto* in = call.contiguous(x).data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) y.mutable_data<float>()[i] = in[i] * static_cast<float>(factor) * FACTOR;
  return y;
}
"""
)


class Model(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aotpack_builds.scale(x, 2.0)  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with custom_kernels_restored():
        yield


@pytest.fixture(scope="module")
def program() -> Any:
    return aot_export(Model(), (torch.randn(3, 4),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "factor.h").write_text("#define FACTOR 1\n")
    (tmp_path / "scale.cpp").write_text(SCALE)
    return tmp_path


@pytest.fixture
def archive(folder: Path, cache_dir: Path, program: Any) -> Any:
    """Builds the model's archive; returns the report."""

    def run(**options: Any) -> BuildReport:
        # Kernels of these tests compute something else than the implementation in Python.
        built = BuildOptions(cache_dir=cache_dir, check=False)
        return build_archive(program, folder / "out.aotpack", options=built, **options)

    return run


def result(path: Path) -> float:
    return float(aotpack.load(path)(torch.ones(3, 4))[0, 0])


# ---- what goes in ---------------------------------------------------------------------------------------------------


def test_headers_and_flags_are_part_of_what_is_cached(folder: Path, archive: Any) -> None:
    custom_kernel(OPERATOR, sources=folder / "scale.cpp")
    report = archive()
    assert result(report.path) == 2
    first = manifest_of(report.path).producer
    assert re.fullmatch(r"scale\.cpp sha256:[0-9a-f]{64}", first[f"kernel {OPERATOR}"])
    assert archive().cache_misses == 0
    # No earlier run has cached that one.
    factor = random.SystemRandom().randrange(1000, 1 << 20)
    (folder / "factor.h").write_text(f"#define FACTOR {factor}\n")
    report = archive()
    assert report.cache_misses == 2  # the source and the link
    assert result(report.path) == 2 * factor
    (folder / "factor.h").write_text("")
    custom_kernel(OPERATOR, sources=folder / "scale.cpp", flags=["-DFACTOR=7"])
    assert result(archive().path) == 14
    (folder / "factor.h").unlink()
    (folder / "more").mkdir()
    (folder / "more" / "factor.h").write_text("#define FACTOR 11\n")
    custom_kernel(OPERATOR, sources=folder / "scale.cpp", include_dirs=[folder / "more"])
    assert result(archive().path) == 22


def test_objects_and_archives_are_linked(folder: Path, archive: Any) -> None:
    (folder / "scale.h").write_text(
        HEAD + "namespace mine { Tensor scale(Call& call, Tensor x, const double& factor); }\n"
    )
    (folder / "object.cpp").write_text(
        '#include "scale.h"\nextern float third(); Tensor mine::scale(Call& call, Tensor x, const double&) { '
        "auto y = call.empty(x.sizes(), x.dtype()); "
        "for (int64_t i = 0; i < x.numel(); ++i) y.mutable_data<float>()[i] = third(); return y; }\n"
    )
    (folder / "library.cpp").write_text("float third() { return 3; }\n")
    target = Target.host().name
    compiler = toolchain.find_compiler().path
    for name in ("object", "library"):
        command = [compiler, *toolchain.custom_flags(target), "-I", include(), "-c", f"{name}.cpp", "-o", f"{name}.o"]
        subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["ar", "rcs", "liblibrary.a", "library.o"], cwd=folder, check=True)
    custom_kernel(
        OPERATOR,
        sources=folder / "scale.h",
        function="mine::scale",
        objects={target: [folder / "liblibrary.a", folder / "object.o"]},
    )
    report = archive()
    assert result(report.path) == 3
    assert "scale.h, liblibrary.a, object.o sha256:" in manifest_of(report.path).producer[f"kernel {OPERATOR}"]
    # The library's content is part of what is cached.
    (folder / "library.cpp").write_text("float third() { return 4; }\n")
    subprocess.run(
        [compiler, *toolchain.custom_flags(target), "-c", "library.cpp", "-o", "library.o"], cwd=folder, check=True
    )
    subprocess.run(["ar", "rcs", "liblibrary.a", "library.o"], cwd=folder, check=True)
    assert result(archive().path) == 4
    custom_kernel(OPERATOR, sources=folder / "scale.h", function="mine::scale", objects=[folder / "object.o"])
    with pytest.raises(CompileError, match=r"undefined symbol third\(\)$"):
        archive()
    # Without a header the function is declared from the schema: by reference, which the object does not have.
    custom_kernel(OPERATOR, function="mine::scale", objects=[folder / "object.o", folder / "liblibrary.a"])
    with pytest.raises(CompileError, match=r"undefined symbol mine::scale\(.*Call&, .*Tensor const&, double\)$"):
        archive()
    other = "x86-64-v3" if target != "x86-64-v3" else "x86-64-v4"
    custom_kernel(OPERATOR, sources=folder / "scale.h", objects={other: [folder / "object.o"]})
    with pytest.raises(BuildError, match=f"has objects for {other}, none for {target}"):
        archive()


def test_an_object_without_a_header_has_the_signature_of_the_schema(folder: Path, archive: Any) -> None:
    command = [toolchain.find_compiler().path, *toolchain.custom_flags(Target.host().name), "-I", include()]
    subprocess.run([*command, "-c", "scale.cpp", "-o", "scale.o"], cwd=folder, check=True)
    custom_kernel(OPERATOR, objects=[folder / "scale.o"])
    assert result(archive().path) == 2


def test_two_targets(folder: Path, archive: Any) -> None:
    (folder / "factor.h").write_text("#ifdef __AVX512F__\n#define FACTOR 2\n#else\n#define FACTOR 3\n#endif\n")
    custom_kernel(OPERATOR, sources=folder / "scale.cpp")
    report = archive(targets=["x86-64-v3", "x86-64-v4"])
    assert report.targets == ("x86-64-v3", "x86-64-v4")
    assert result(report.path) == (4 if Target("x86-64-v4").runs_on(Target.host()) else 6)


def include() -> str:
    return str(kernel_include_dir())


# ---- what the compiler refuses --------------------------------------------------------------------------------------

BODY = "{ return call.empty(x.sizes(), x.dtype()); }\n"
WANTED = "Tensor scale(Call& call, const Tensor& x, double factor)"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("Tensor scale(Call& call, const Tensor& x)", "requires the function"),
        ("Tensor scale(Call& call, const Tensor& x, float factor)", "requires the function"),
        ("Tensor scale(Call& call, double factor, const Tensor& x)", "requires the function"),
        ("std::vector<Tensor> scale(Call& call, const Tensor& x, double factor)", "requires the function"),
        ("Tensor other(Call& call, const Tensor& x, double factor)", "scale"),
        (
            "Tensor scale(Call& call, const Tensor& x, double factor) { oops; }\nTensor other(Call& call, Tensor x)",
            "oops",
        ),
    ],
)
def test_a_function_of_another_signature_is_a_readable_error(
    folder: Path, archive: Any, function: str, said: str
) -> None:
    body = "{ return {call.empty(x.sizes(), x.dtype())}; }\n" if "vector" in function else BODY
    (folder / "bad.cpp").write_text(HEAD + function + body)
    custom_kernel(OPERATOR, sources=folder / "bad.cpp")
    with pytest.raises(CompileError) as caught:
        archive()
    message = str(caught.value)
    assert message.startswith("compiling bad.cpp failed:")
    assert said in message
    if said == "requires the function":
        assert "aotpack_builds::scale(Tensor x, float factor) -> Tensor" in message
        assert WANTED in message
    assert caught.value.hint == f"{OPERATOR} is computed by {WANTED}"


def test_undefined_symbols_are_named(folder: Path, archive: Any) -> None:
    text = HEAD + 'extern "C" double cblas_of_some_library(); void more();\n'
    text += "Tensor scale(Call& call, const Tensor& x, double factor) { cblas_of_some_library(); more(); " + BODY[1:]
    (folder / "bad.cpp").write_text(text)
    custom_kernel(OPERATOR, sources=folder / "bad.cpp")
    with pytest.raises(CompileError, match=r"undefined symbol cblas_of_some_library, more\(\)$") as caught:
        archive()
    assert "static archives" in str(caught.value.hint)


# ---- what is refused before -----------------------------------------------------------------------------------------


def test_what_custom_kernel_refuses(folder: Path) -> None:
    source = folder / "scale.cpp"
    (folder / "lib.so").write_bytes(b"")
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("scale", {"sources": source}, "is not the name of an operator"),
        (OPERATOR, {}, "no kernel is given"),
        (OPERATOR, {"sources": folder / "none.cpp"}, "no such file: .*none.cpp"),
        (OPERATOR, {"sources": source, "function": "a b"}, "is not the name of a C"),
        (OPERATOR, {"sources": source, "include_dirs": [folder / "none"]}, "no such directory: .*none"),
        (OPERATOR, {"objects": [folder / "lib.so"]}, "neither an object .* nor a static archive"),
    ]
    for operator, arguments, message in refused:
        with pytest.raises(BuildError, match=message):
            custom_kernel(operator, **arguments)
    define("composite(Tensor x) -> Tensor")
    _library.impl("composite", lambda x: x + 1, "CompositeImplicitAutograd")
    with pytest.raises(BuildError, match="CompositeImplicitAutograd"):
        custom_kernel("aotpack_builds::composite", sources=source)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("device(Tensor x, Device d) -> Tensor", "the argument 'd' .* is of the type Device"),
        ("number(Tensor x, Scalar? n) -> Tensor", "the argument 'n'"),
        ("view(Tensor(a) x) -> Tensor(a)", "view of its argument 'x'"),
        ("own(Tensor(a!) x) -> Tensor(a!)", "returns one of its arguments"),
        ("count(Tensor x) -> int", r"returns \(int\)"),
        ("mixed(Tensor x) -> (Tensor, Tensor[])", r"returns \(Tensor, List\[Tensor\]\)"),
    ],
)
def test_schemas_that_kernels_cannot_have(folder: Path, schema: str, message: str) -> None:
    op = define(schema).default
    kernel = custom_kernel(op._schema.name, sources=folder / "scale.cpp")
    with pytest.raises(BuildError, match=message):
        glue(op, kernel)


def test_every_operator_has_a_function_of_its_own() -> None:
    library = [torch.library.Library(name, "DEF") for name in ("aotpack_b", "aotpack_b__c", "aotpack_b_")]
    library[0].define("c__d(Tensor x) -> Tensor")
    library[0].define("c(Tensor x) -> Tensor")
    library[0].define("c.d(Tensor x, int d) -> Tensor")
    library[1].define("d(Tensor x) -> Tensor")
    library[2].define("c(Tensor x) -> Tensor")
    ops = torch.ops
    names = [
        ops.aotpack_b.c__d.default,
        ops.aotpack_b.c.default,
        ops.aotpack_b.c.d,
        ops.aotpack_b__c.d.default,
        ops.aotpack_b_.c.default,
        ops.aten.mm.default,
    ]
    assert len({shim_name(op) for op in names}) == len(names)


@torch.library.triton_op("aotpack_builds::launched", mutates_args={})
def launched(x: Tensor, factor: float) -> Tensor:
    """An operator with a Triton kernel, which cannot be launched where there is no GPU."""
    raise RuntimeError("a Triton kernel was launched")


def test_an_operator_with_a_triton_kernel_runs_another_on_cpus(folder: Path, archive: Any, cache_dir: Path) -> None:
    """An implementation for the CPU over torch, or a C++ kernel."""

    class Launching(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return launched(x, 2.0)

    def build() -> float:
        program = aot_export(Launching(), (torch.ones(3, 4),))
        options = BuildOptions(cache_dir=cache_dir, check=False)
        report = build_archive(program, folder / "out.aotpack", options=options)
        return result(report.path)

    launched.register_fake(lambda x, factor: x.new_empty(x.shape))
    launched.register_kernel("cpu")(lambda x, factor: x * factor * 2)
    assert build() == 4
    custom_kernel("aotpack_builds::launched", sources=folder / "scale.cpp", function="scale")
    assert build() == 2


def test_without_a_kernel_the_operator_is_refused_by_name(archive: Any) -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        archive()
    assert caught.value.operators == ("aotpack_builds.scale",)
    assert "custom_ops.md" in str(caught.value.hint)


# ---- torch ----------------------------------------------------------------------------------------------------------


def test_what_calls_of_kernels_need_of_torch_is_there() -> None:
    """Private interfaces that aotpack/export/torch_compat/inductor/custom_calls.py and custom/inlining.py patch."""
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
    from torch._inductor.ir import ExternKernel, MultiOutput

    def parameters(function: Any) -> list[str]:
        return list(inspect.signature(function).parameters)

    assert parameters(ExternKernel.set_cpp_kernel_name) == ["self", "cpp_kernel_name"]
    assert parameters(MultiOutput.codegen) == ["self", "wrapper"]
    assert CppWrapperCpu.get_c_shim_func_name("aoti_torch_cpu_custom_x", "cpu") == "aoti_torch_cpu_custom_x"
    assert isinstance(torch._functorch.config.decompose_custom_triton_ops, bool)
    assert launched._init_fn.__module__ == "torch._library.triton"
    if importlib.util.find_spec("torch._library._out_variant") is not None:
        module = importlib.import_module("torch._library._out_variant")
        assert parameters(module.to_out_variant)
        if VERSION >= (2, 12):
            assert parameters(module.lookup_manual_out_variant)


def test_strings_arrive_as_c_literals() -> None:
    for text in ("", "plain", 'a "b" \\n', "line\nbreak", "größe", "\x011", "??=", "%d"):
        literal = _literal(text)
        assert re.fullmatch(r'"(?:[^"\\]|\\[0-7]{3})*"', literal)
        decoded = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), literal[1:-1].encode())
        assert decoded == text.encode()
