"""Reading generated C++ as text, and guards around its checks: as text, and compiled against the module's headers."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from aotpack.building import native_sources
from aotpack.export.backends.cpp_text import blank_literals, closing_brace
from aotpack.export.backends.cpu import kernel_source, kernel_words, toolchain
from aotpack.export.backends.cpu.kernel_source import (
    TranslationUnits,
    guard,
    translation_units,
    without_last_barriers,
)

_PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>"


class TestSource:
    def test_literals_are_blanked_in_place(self) -> None:
        text = 'f("{\\"}"); // } {\n/* {\n */ g(R"x({ ")x"); h("a");'
        blanked = blank_literals(text)
        assert len(blanked) == len(text)
        assert blanked.count("\n") == text.count("\n")
        assert not set(blanked) & set('{}"')
        for name in "fgh":
            assert blanked[text.index(f"{name}(")] == name

    def test_closing_brace(self) -> None:
        text = "a { b { } { c } } d { }"
        assert closing_brace(text, 2) == text.index("} d")
        assert closing_brace(text, 6) == 8
        with pytest.raises(ValueError, match="unbalanced"):
            closing_brace("{ { }", 0)

    def test_kernels_are_grouped(self) -> None:
        kernels = [f"void k{i}()\n{{\n    f({i});\n}}" for i in range(4)]
        units = translation_units([f"\n{_PREFIX}\n{kernel}\n" for kernel in kernels], 2 * len(kernels[0]))
        assert units == ["\n\n".join([_PREFIX, *pair]) + "\n" for pair in (kernels[:2], kernels[2:])]
        assert translation_units([], 10) == []

    def test_sources_are_complete_before_the_last_kernel(self) -> None:
        kernels = [f'extern "C" void cpp_fused_{i}(float* out_ptr0)\n{{\n    out_ptr0[{i}] = 1;\n}}' for i in range(5)]
        for own, header in ((True, kernel_words.OWN), (False, _PREFIX)):
            finished: list[str] = []
            units = TranslationUnits(2 * len(kernels[0]), own_headers=own, finished=finished.append)
            done = []
            for kernel in kernels:
                units.add(f"\n{_PREFIX}\n{kernel}\n")
                done.append(len(finished))
            assert done == [0, 0, 1, 1, 2]
            assert units.all()[:2] == finished
            assert units.all() == translation_units(kernels, 2 * len(kernels[0]), own_headers=own)
            assert all(unit.startswith(header) for unit in finished)

    def test_sources_with_quick_headers_are_short(self) -> None:
        body = "    out_ptr0[0] = 1;\n" * (kernel_source.QUICK_LIMIT // 40)
        kernels = [f'extern "C" void cpp_fused_{i}(float* out_ptr0)\n{{\n{body}}}' for i in range(4)]
        assert len(translation_units(kernels, 1 << 20, own_headers=True)) == 4
        assert len(translation_units(kernels, 1 << 20)) == 1


def blocks(kernel: str) -> list[str]:
    """What the guards of a kernel hold, and proof that everything is balanced and in order."""
    guarded = guard(kernel)
    plain = re.sub(r"\nAOTPACK_\w+\n", "", guarded)
    assert plain == kernel, "a guard changes nothing but adds lines"
    words = re.findall(r"AOTPACK_(\w+)", guarded)
    assert words[0] == "FAULT_DECLARE"
    assert words[-1] == "FAULT_RAISE"
    assert words[1:-1] == ["GUARD_BEGIN", "GUARD_END"] * (len(words) // 2 - 1)
    found = re.findall(r"AOTPACK_GUARD_BEGIN\n(.*?)\nAOTPACK_GUARD_END", guarded, re.DOTALL)
    assert all(blank_literals(block).count("{") == blank_literals(block).count("}") for block in found)
    return [re.sub(r"\s+", " ", block).strip() for block in found]


class TestGuard:
    def test_without_checks_nothing_changes(self) -> None:
        kernel = 'void k(int* p)\n{\n    for (int i = 0; i < 3; ++i) { p[i] = f("AOTI_TORCH_CHECK("); }\n}'
        assert guard(kernel) == kernel

    def test_checks_of_masked_reads_can_fail(self) -> None:
        checks = (
            ("((0 <= tmp2) & (tmp2 < 8L)) | ~(tmp3)", "((0 <= tmp2) & (tmp2 < 8L)) | !(tmp3)"),
            ("(tmp2 < 8L) | ~((tmp3).all_masked())", "(tmp2 < 8L) | (tmp3).all_zero()"),
            ("((VecMask(0 <= tmp2)) | ~(tmp3)).all_masked()", "((VecMask(0 <= tmp2)) | ~(tmp3)).all_masked()"),
        )
        for written, expected in checks:
            guarded = guard(f'void k()\n{{ AOTI_TORCH_CHECK({written}, "index out of bounds: tmp2 < 8L"); }}')
            assert f"AOTI_TORCH_CHECK({expected}, " in guarded

    def test_the_innermost_of_nested_loops(self) -> None:
        kernel = "void k()\n{\n for (a) { x(); for(long i=f(0); i<g(2); ++i) { AOTI_TORCH_CHECK(c); y(); } z(); }\n}"
        assert blocks(kernel) == ["AOTI_TORCH_CHECK(c); y();"]

    def test_blocks_that_are_no_loops_are_passed_over(self) -> None:
        kernel = "void k()\n{\n for (a) { { if (C10_LIKELY(a >= 0)) { AOTI_TORCH_CHECK(c); } y(); } }\n}"
        assert blocks(kernel) == ["{ if (C10_LIKELY(a >= 0)) { AOTI_TORCH_CHECK(c); } y(); }"]

    def test_without_a_loop_the_function(self) -> None:
        assert blocks("void k()\n{ { AOTI_TORCH_CHECK(c); } y(); }") == ["{ AOTI_TORCH_CHECK(c); } y();"]

    def test_a_lambda_in_a_loop_is_left_by_the_exception(self) -> None:
        kernel = "void k()\n{\n for (a) { auto t = [&] { AOTI_TORCH_CHECK(c); return 1; } ; y(t()); }\n}"
        assert blocks(kernel) == ["auto t = [&] { AOTI_TORCH_CHECK(c); return 1; } ; y(t());"]

    def test_a_loop_in_a_lambda(self) -> None:
        kernel = "void k()\n{\n for (a) { auto t = [&] { for (b) { AOTI_TORCH_CHECK(c); } return 1; } ; y(t()); }\n}"
        assert blocks(kernel) == ["AOTI_TORCH_CHECK(c);"]

    def test_two_checks_in_one_loop_share_a_guard(self) -> None:
        kernel = "void k()\n{\n for (a) { AOTI_TORCH_CHECK(c); y(); AOTI_TORCH_CHECK(d); }\n}"
        assert blocks(kernel) == ["AOTI_TORCH_CHECK(c); y(); AOTI_TORCH_CHECK(d);"]

    def test_a_guard_covers_loops_inside_it(self) -> None:
        kernel = "void k()\n{\n for (a) { AOTI_TORCH_CHECK(c); for (b) { AOTI_TORCH_CHECK(d); } }\n}"
        assert blocks(kernel) == ["AOTI_TORCH_CHECK(c); for (b) { AOTI_TORCH_CHECK(d); }"]

    def test_loops_side_by_side_have_their_own(self) -> None:
        kernel = "void k()\n{\n for (a) { AOTI_TORCH_CHECK(c); }\n for (b) { AOTI_TORCH_CHECK(d); }\n}"
        assert blocks(kernel) == ["AOTI_TORCH_CHECK(c);", "AOTI_TORCH_CHECK(d);"]

    def test_openmp_constructs_hold_the_guard_inside(self) -> None:
        kernel = (
            "void k()\n{\n#pragma omp parallel num_threads(2)\n {\n  int tid; { AOTI_TORCH_CHECK(c); }\n }\n y();\n}"
        )
        assert blocks(kernel) == ["int tid; { AOTI_TORCH_CHECK(c); }"]
        single = "#pragma omp single\n { AOTI_TORCH_CHECK(c); }"
        kernel = f"void k()\n{{\n#pragma omp parallel\n {{ for (a)\n {{\n{single}\n }}\n }}\n}}"
        assert blocks(kernel) == ["AOTI_TORCH_CHECK(c);"]

    def test_braces_in_strings_and_comments_count_for_nothing(self) -> None:
        kernel = 'void k()\n{\n for (a) { // }\n f("}"); AOTI_TORCH_CHECK(c, "{ {"); /* } */ }\n y("{");\n}'
        (block,) = blocks(kernel)
        assert block.endswith('AOTI_TORCH_CHECK(c, "{ {"); /* } */')

    def test_every_function_of_a_kernel_declares_its_own_fault(self) -> None:
        functions = ("void a()\n{\n for (i) { AOTI_TORCH_CHECK(c); }\n}", "void b()\n{\n y();\n}")
        kernel = "\n".join((*functions, "void d()\n{\n AOTI_TORCH_CHECK(c);\n}"))
        first, second, third = re.split(r"\n(?=void)", guard(kernel))
        assert first.count("AOTPACK_FAULT_DECLARE") == third.count("AOTPACK_FAULT_DECLARE") == 1
        assert "AOTPACK" not in second

    @pytest.mark.parametrize(
        ("condition", "said"),
        [
            ("0 <= tmp2 < 100L", "at least 0 and below 100"),
            ("tmp2 < 100L", "below 100"),
            ("0 <= tmp2 < ks0", "at least 0 and below the size of the dim that it indexes"),
            ("0 <= tmp2", "at least 0"),
        ],
    )
    def test_messages_speak_of_indices(self, condition: str, said: str) -> None:
        kernel = f'void k()\n{{\n    AOTI_TORCH_CHECK(c, "index out of bounds: {condition}");\n}}'
        assert f'"index out of range: an index must be {said}"' in guard(kernel)


_KERNEL = """
extern "C"  void  gather(const long* in_ptr0, const float* in_ptr1, float* out_ptr0, long n)
{
    #pragma omp parallel num_threads(4)
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(long x0=0; x0<n; x0+=1)
            {
                for(long x1=0; x1<4; x1+=1)
                {
                    {
                        auto tmp0 = in_ptr0[x0];
                        auto tmp1 = [&]
                        {
                            AOTI_TORCH_CHECK((0 <= tmp0) & (tmp0 < 10L), "index out of bounds: 0 <= tmp0 < 10L");
                            return in_ptr1[4*tmp0 + x1];
                        }
                        ;
                        out_ptr0[4*x0 + x1] = tmp1();
                    }
                }
            }
        }
    }
}
"""

_MAIN = """
namespace aotpack::module {
[[noreturn]] void throw_invalid(const std::string& message) { throw Error(2, message); }
}
int main() {
  std::vector<long> indices(1000);
  std::vector<float> table(40), out(4000);
  for (int i = 0; i < 1000; ++i) indices[i] = i % 10;
  for (int i = 0; i < 40; ++i) table[i] = float(i);
  for (int round = 0; round < 3; ++round) {
    // Bad in the second round, in every thread's share.
    for (int i = 0; i < 1000; i += 7) indices[i] = round == 1 ? 1000000000000L : i % 10;
    try {
      gather(indices.data(), table.data(), out.data(), 1000);
      bool right = true;
      for (int i = 0; i < 4000; ++i) right = right && out[i] == float((i / 4) % 10 * 4 + i % 4);
      std::puts(right ? "right" : "wrong");
    } catch (const aotpack::module::Error& error) {
      std::printf("%d threads left, %s\\n", omp_in_parallel(), error.message().c_str());
    }
  }
}
"""


def test_a_failing_check_in_a_parallel_region_is_an_exception_after_it(tmp_path: Path) -> None:
    kernel = guard(_KERNEL)
    text = "\n".join(["#include <atomic>", "#include <cstdio>", '#include "shim.h"', kernel, _MAIN])
    (tmp_path / "main.cpp").write_text(text)
    includes = [flag for folder in native_sources.include_folders() for flag in ("-I", str(folder))]
    compiler = toolchain.find_compiler().path
    command = [compiler, "-std=c++20", "-O1", "-fopenmp", "-w", *includes, "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    result = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False, timeout=60)
    expected = """\
        right
        0 threads left, index out of range: an index must be at least 0 and below 10
        right
    """
    assert (result.returncode, result.stdout) == (0, textwrap.dedent(expected)), result.stderr


_LOOPS = """
void kernel(const float* in, float* out)
{
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=0L; x0<10L; x0+=1L)
            {
                { out[x0] = in[x0]; }
            }
        }
        {
            #pragma omp for collapse(2)
            for(int64_t x0=0L; x0<10L; x0+=1L)
            {
                for(int64_t x1=0L; x1<10L; x1+=1L)
                {
                    out[x0] += 1.0f;  // }
                }
            }
        }
    }
    #pragma omp parallel num_threads(2)
    {
        #pragma omp for
        for(int64_t x0=0L; x0<10L; x0+=1L)
        {
            out[x0] = in[x0];
        }
        tmp_arr[tid] = 1;
    }
    #pragma omp parallel for
    for(int64_t x0=0L; x0<10L; x0+=1L) { out[x0] = 0; }
}
"""


def test_the_last_loop_of_a_region_has_no_barrier_of_its_own() -> None:
    found = without_last_barriers(_LOOPS)
    assert [line.strip() for line in found.splitlines() if "omp for" in line or "parallel for" in line] == [
        "#pragma omp for",
        "#pragma omp for collapse(2) nowait",
        "#pragma omp for",
        "#pragma omp parallel for",
    ]
    assert found.replace(" nowait", "") == _LOOPS
    assert without_last_barriers(found) == found
