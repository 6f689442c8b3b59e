"""TorchInductor's lowerings are imported without compiling templates, which render the same when they are used."""

from __future__ import annotations

import subprocess
import sys

from torch._inductor.codegen.common import KernelTemplate

from aotpack.export.torch_compat.inductor.loading import LateTemplate

_LOADED = """
import jinja2
from aotpack.export.torch_compat.inductor.loading import LateTemplate, load_lowerings
compiled = []
from_string = jinja2.Environment.from_string

def noted(self, source, *args, **options):
    compiled.append(source)
    return from_string(self, source, *args, **options)

jinja2.Environment.from_string = noted
load_lowerings()
from torch._inductor.codegen.common import KernelTemplate
from torch._inductor.kernel.mm import mm_template
assert not isinstance(KernelTemplate._template_from_string("{{x}}"), LateTemplate)
assert compiled == ["{{x}}"], len(compiled)
assert isinstance(mm_template.template, LateTemplate) and mm_template.template
source = mm_template.template._source
# Rendering takes functions of a kernel; what jinja made of the source is compared instead.
assert mm_template.template.environment.compile(source, raw=True) == from_string(
    mm_template.template.environment, source).environment.compile(source, raw=True)
assert compiled == ["{{x}}", source]
mm_template.template.root_render_func
assert compiled == ["{{x}}", source], "compiled once"
"""


def test_templates_are_compiled_when_they_are_used() -> None:
    subprocess.run([sys.executable, "-c", _LOADED], check=True)


def test_a_late_template_renders_as_one_that_is_compiled_at_once() -> None:
    source = "{% for i in range(n) %}{{ i | string }},{% endfor %}"
    late = LateTemplate(source, KernelTemplate._template_from_string)
    assert late.render(n=3) == KernelTemplate._template_from_string(source).render(n=3) == "0,1,2,"
    assert late


_TABLES = """
from aotpack.export.torch_compat.inductor.loading import load_lowerings
load_lowerings()
from torch._decomp import core_aten_decompositions
from torch._inductor.decomposition import decompositions, inductor_decompositions
wanted = {**core_aten_decompositions(), **inductor_decompositions}
missing = {op for op in wanted if op not in decompositions}
from torch._inductor.decomposition import decomps_to_exclude
excluded = {getattr(each, overload) for each in decomps_to_exclude if hasattr(each, "overloads")
            for overload in each.overloads()} | set(decomps_to_exclude)
assert len(decompositions) > 1000 and missing <= excluded, missing - excluded
"""


def test_the_table_of_decompositions_is_complete() -> None:
    subprocess.run([sys.executable, "-c", _TABLES], check=True)
