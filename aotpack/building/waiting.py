"""Compilers that are started before their source is there.

Generated code includes torch's vector library, which takes longer to read than most kernels to compile. So a build
starts the compiler at its begin, on that include and on one of standard input: GCC reads files in the order in which
they are included, and waits at the second. It splits everything into tokens before it parses any: of some 1.6 s that
the header costs, 0.2 to 0.4 s pass meanwhile, and the start of the processes.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from types import TracebackType

from aotpack.building.compiler import Compiler
from aotpack.building.processes import ProcessGroup
from aotpack.building.temporary import private_folder
from aotpack.errors import CompileError

_OBJECT = "unit.o"


class WaitingCompiler:
    """A running compiler that has been given the first line of the source `name`, an include. As a context manager, it
    is killed at the end unless it has compiled something.
    """

    def __init__(self, compiler: Compiler, flags: tuple[str, ...], name: str, line: str) -> None:
        self.name, self.flags, self.line = name, flags, line
        self._group = ProcessGroup()
        self._compiler = compiler.within(self._group)
        self._text: Future[str] = Future()
        self._object: Future[bytes | None] = Future()
        self._thread = threading.Thread(target=self._work, name="aotpack-waiting-compiler", daemon=True)
        self._thread.start()

    def __enter__(self) -> WaitingCompiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._group.kill()
        self._give("")
        self._thread.join()

    def compile(self, text: str) -> bytes | None:
        """The object of a source, which may begin with the first line again.

        None where the compiler fails, for whatever reason, and for all calls but the first.
        """
        # As the compiler would speak of it, in errors and in __FILE__.
        return self._object.result() if self._give(f'#line 1 "{self.name}"\n{text}') else None

    def _give(self, text: str) -> bool:
        """Whether nothing was given before."""
        with contextlib.suppress(Exception):
            self._text.set_result(text)
            return True
        return False

    def _work(self) -> None:
        content = None
        try:
            with contextlib.suppress(CompileError, OSError), private_folder() as folder:
                (folder / self.name).write_text(f'{self.line}\n#include "/dev/stdin"\n')
                arguments = [*self.flags, "-c", self.name, "-o", _OBJECT]
                done = self._compiler.run(arguments, cwd=folder, source=self._text.result)
                if done.returncode == 0:
                    content = (folder / _OBJECT).read_bytes()
        finally:
            self._object.set_result(content)
