"""The partitioner and splitting, scenario by scenario: stages over logical devices, run without torch, against eager.

Devices have budgets in bytes. Where a scenario counts bytes, the model is small enough to add them up by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.archive import Step, read_manifest
from aotpack.errors import DeviceMemoryError, NodeTooLargeError, StageCycleError
from aotpack.export import Device, Part, Partitioning, Program, Topology, aot_export, partition
from aotpack.export.partition.split import split
from tests.support.building import assert_close
from tests.support.torchless import RemoteModel

pytestmark = pytest.mark.torch

Build = Callable[..., RemoteModel]
B = Dim("batch", 1, 32)
MB = 1 << 20


def steps(archive: RemoteModel) -> tuple[Step, ...]:
    (entry,) = read_manifest(Path(archive.path)).entries
    (implementation,) = entry.variants[0].implementations
    return implementation.steps


def check_stages(
    build: Build, model: nn.Module, args: tuple[Any, ...], cut: Partitioning, **options: Any
) -> RemoteModel:
    """Builds the stages, and compares with eager: the example, and other values."""
    archive = build(model, args, partitioning=cut, **options)
    assert len(steps(archive)) == len(cut.stages)
    for _ in range(2):
        given = tuple(torch.randn_like(a) if a.is_floating_point() else a for a in args)
        with torch.no_grad():
            assert_close(archive(*given), model(*given))
    return archive


class Add(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


class LinearAndAdds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        add_1 = a + b
        linear = self.linear(add_1)
        add_2 = linear.sin() @ add_1.t()
        return add_2.exp()


# ---- the partitioner ------------------------------------------------------------------------------------------------


def test_find_single_partition(build: Build) -> None:
    """What fits on one device is one partition, on the device with the most memory: three values of 16 bytes."""
    args = (torch.rand(4), torch.rand(4))
    program = aot_export(Add(), args)
    found = partition(program, [Device("dev_0", 40), Device("dev_1", 48), Device("dev_2", 47)])
    (stage,) = found.stages
    assert (stage.device.name, stage.bytes.total, found.device_bytes) == ("dev_1", 48, {"dev_1": 48})
    check_stages(build, Add(), args, found)


def test_lack_of_devices() -> None:
    class Chain(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return torch.cumsum(torch.cumsum(a + b, 0) + a, 0) + b

    program = aot_export(Chain(), (torch.rand(4), torch.rand(4)))
    with pytest.raises(DeviceMemoryError, match="2 devices with 100 bytes in total are too few") as info:
        partition(program, [Device("dev_0", 50), Device("dev_1", 50)])
    assert info.value.available == 100
    assert not isinstance(info.value, NodeTooLargeError)
    with pytest.raises(DeviceMemoryError):
        partition(program, [Device("dev_0", 50), Device("dev_1", 50)], "cost-aware")


def test_large_node_error() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, a: Tensor) -> Tensor:
            return self.linear(a) + a

    # The linear has 64 + 16 bytes of weights, 16 of input and 16 of output.
    program = aot_export(Wide(), (torch.rand(1, 4),))
    with pytest.raises(NodeTooLargeError, match=r"'linear' \(aten.linear\) needs 112 bytes \(80 of weights") as info:
        partition(program, [Device("dev_0", 100), Device("dev_1", 111)])
    assert (info.value.node, info.value.nbytes, info.value.available) == ("linear", 112, 111)


def test_partition_node_manipulation(build: Build) -> None:
    """Moving a node from a stage to another changes what both hold; moving it back restores that."""
    args = (torch.rand(4), torch.rand(4))

    class Adds(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            x = a + b
            y = torch.cumsum(x, 0)
            return torch.cumsum(y, 0) + a

    program = aot_export(Adds(), args)
    devices = [Device("dev_0", 150), Device("dev_1", 150)]
    first = partition(program, devices, "mapping", mapping={"": "dev_0"})
    (whole,) = first.stages
    last = whole.nodes[-1]
    moved = first.moved({last: "dev_1"})
    assert [stage.nodes for stage in moved.stages] == [whole.nodes[:-1], (last,)]
    # The sum reads two values and makes one, of 16 bytes each.
    assert moved.device_bytes["dev_1"] == 48
    assert moved.moved({last: "dev_0"}).device_bytes == first.device_bytes
    with pytest.raises(StageCycleError):
        moved.moved({whole.nodes[0]: "dev_1"})
    check_stages(build, Adds(), args, moved)


def test_size_based_partition(build: Build) -> None:
    class Model(nn.Module):
        c: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("c", torch.rand(4, 4))

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            add_1 = a + b
            linear = self.linear(add_1)
            return torch.cumsum(linear, 0) @ self.c

    args = (torch.rand(4, 4), torch.rand(4, 4))
    program = aot_export(Model().eval(), args)
    devices = [Device(f"dev_{i}", 210 + i) for i in range(4)]
    found = partition(program, devices)
    # An add (192), a linear (80 + 64 + 64), a sum (128), a product (64 + 64 + 64).
    assert [(stage.device.name, stage.nodes, stage.bytes.total) for stage in found.stages] == [
        ("dev_3", ("add",), 192),
        ("dev_2", ("linear",), 208),
        ("dev_1", ("cumsum",), 128),
        ("dev_0", ("matmul",), 192),
    ]
    assert [transfer.nbytes for transfer in found.transfers] == [64, 64, 64]
    model = Model().eval()
    check_stages(build, model, args, partition(aot_export(model, args), devices))


def test_partition_device_mapping(build: Build) -> None:
    """Names of nodes and paths of modules, and which devices stages have in the archive."""
    model, args = LinearAndAdds().eval(), (torch.rand(4, 4), torch.rand(4, 4))
    program = aot_export(model, args)
    devices = [Device("dev_0", MB), Device("dev_1", MB), Device("dev_2", MB)]
    found = partition(program, devices, "mapping", mapping={"add": "dev_2", "linear": "dev_0", "": "dev_1"})
    assert [stage.device.name for stage in found.stages] == ["dev_2", "dev_0", "dev_1"]
    assert [stage.nodes for stage in found.stages[:2]] == [("add",), ("linear",)]
    archive = check_stages(build, model, args, found)
    assert read_manifest(Path(archive.path)).devices == ("dev_2", "dev_0", "dev_1")
    assert [step.device for step in steps(archive)] == [0, 1, 2]
    with pytest.raises(StageCycleError, match=r"add \(dev_0\) → linear \(dev_1\)"):
        partition(program, devices, "mapping", mapping={"": "dev_0", "linear": "dev_1"})


class Recommendation(nn.Module):
    """Dense features and bags of ids -> scores."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
        self.tables = nn.ModuleList([nn.EmbeddingBag(5000, 16, mode="sum") for _ in range(4)])
        self.top = nn.Sequential(nn.Linear(80, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
        x = dense
        for layer in self.bottom:
            x = torch.relu(layer(x))
        bags = [table(ids % 5000, offsets) for table in self.tables]
        return torch.sigmoid(self.top(torch.cat([x, *bags], 1)))


def test_sparse_nn_partition(build: Build) -> None:
    """A table has 320,000 bytes: two on each memory device; all else on a compute device."""
    model = Recommendation().eval()
    args = (torch.randn(4, 16), torch.randint(0, 5000, (12,)), torch.tensor([0, 3, 6, 9]))
    shapes = {"dense": {0: B}, "ids": {0: Dim("n", 1, 200)}, "offsets": {0: B}}
    program = aot_export(model, args, dynamic_shapes=shapes)
    memory = [Device(f"memory_{i}", 650_000, kind="memory") for i in range(3)]
    found = partition(program, [Device("compute_0", 100_000), *memory], "sparse-nn")
    tables = [stage for stage in found.stages if stage.device.kind == "memory"]
    assert sorted(source for stage in tables for names in stage.weights.values() for source in names) == [
        f"tables.{i}.weight" for i in range(4)
    ]
    assert [len(stage.weights) for stage in tables] == [2, 2]
    (rest,) = (stage for stage in found.stages if stage.device.kind == "compute")
    assert not any("tables" in source for names in rest.weights.values() for source in names)
    check_stages(build, model, args, found, dynamic_shapes=shapes)
    with pytest.raises(DeviceMemoryError):
        partition(program, [Device("compute_0", 100_000), memory[0]], "sparse-nn")


def test_partition_latency(build: Build) -> None:
    """Latencies of nodes by name and by operator, of stages, of the critical path with its transfers."""
    model, args = LinearAndAdds().eval(), (torch.rand(4, 4), torch.rand(4, 4))
    program = aot_export(model, args)
    topology = Topology((Device("dev_0", MB), Device("dev_1", MB)), transfer_rate=64.0, transfer_latency=0.25)
    mapping = {"add": "dev_0", "linear": "dev_0", "": "dev_1"}
    latencies = {"add": 1.0, "aten.linear": 2.0, "aten.sin": 4.0, "aten.matmul": 8.0, "aten.exp": 16.0, "aten.t": 0.0}
    found = partition(program, topology, "mapping", mapping=mapping, latencies=latencies)
    assert [stage.seconds for stage in found.stages] == [3.0, 28.0]
    # Both sums of 64 bytes go to the second device.
    assert [(t.nbytes, t.seconds) for t in found.transfers] == [(128, 2.25)]
    assert (found.critical_path, found.seconds, found.slowest_stage) == ((0, 1), 33.25, 30.25)
    assert found.nodes["linear"].seconds == 2.0
    estimated = partition(program, topology, "mapping", mapping=mapping)
    assert estimated.nodes["linear"].seconds > estimated.nodes["add"].seconds > 0
    check_stages(build, model, args, found)


class Branches(nn.Module):
    """Two branches of three products, side by side, and their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
        self.right = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.tanh(self.left(a)) + torch.tanh(self.right(b))


def test_cost_aware_partition(build: Build) -> None:
    """Branches run at the same time where transfers are cheap, and one device does all where they are not."""
    model, args = Branches().eval(), (torch.rand(4, 8), torch.rand(4, 8))
    program = aot_export(model, args)
    latencies = {"aten.linear": 1.0, "aten.tanh": 0.5, "aten.add": 0.1}
    devices = tuple(Device(f"dev_{i}", MB) for i in range(3))
    fast = partition(program, Topology(devices, transfer_rate=1e6), "cost-aware", latencies=latencies)
    by_size = partition(program, Topology(devices, transfer_rate=1e6), "size", latencies=latencies)
    assert by_size.seconds == pytest.approx(7.1)
    assert fast.seconds == pytest.approx(3.5 + 128 / 1e6 + 0.1)
    assert len(fast.stages) >= 2
    slow = partition(program, Topology(devices, transfer_rate=10.0), "cost-aware", latencies=latencies)
    assert len(slow.stages) == 1
    pipeline = partition(
        program, Topology(devices, transfer_rate=1e6), "cost-aware", latencies=latencies, objective="throughput"
    )
    assert pipeline.slowest_stage <= 2.7 < fast.slowest_stage
    for found in (fast, pipeline):
        check_stages(build, model, args, found)


def test_aot_based_partition(build: Build) -> None:
    """Partitions that another tool made are taken as they are, in an order in which they can run."""
    model, args = LinearAndAdds().eval(), (torch.rand(4, 4), torch.rand(4, 4))
    program = aot_export(model, args)
    names = list(partition(program, [Device("all", MB)]).nodes)
    parts = [Part(tuple(names[2:]), "dev_1"), Part(tuple(names[:2]), "dev_0")]
    devices = [Device("dev_0", MB), Device("dev_1", MB)]
    found = partition(program, devices, "aot", partitions=parts)
    assert [(stage.device.name, set(stage.nodes)) for stage in found.stages] == [
        ("dev_0", set(names[:2])),
        ("dev_1", set(names[2:])),
    ]
    check_stages(build, model, args, found)


def test_saturate_host(build: Build) -> None:
    """Two stages on five devices: one more copy, on the smallest devices that have room; one is left."""
    model, args = LinearAndAdds().eval(), (torch.rand(4, 4), torch.rand(4, 4))
    program = aot_export(model, args)
    # The sum and the linear hold 80 bytes of weights, two inputs and two results of 64 bytes.
    sizes = {"dev_0": 350, "dev_1": 340, "dev_2": 338, "dev_3": 325, "dev_4": 250}
    devices = [Device(name, size) for name, size in sizes.items()]
    found = partition(program, devices, saturate_host=True)
    assert [(stage.device.name, stage.bytes.total) for stage in found.stages] == [("dev_0", 336), ("dev_1", 320)]
    assert [[device.name for device in replica] for replica in found.replicas] == [["dev_2", "dev_3"]]
    assert partition(program, devices).replicas == ()
    check_stages(build, model, args, found)


# ---- splitting ------------------------------------------------------------------------------------------------------


def at(program: Program, *first: str) -> Partitioning:
    """Two stages: these nodes and what they read, and the rest."""
    graph = program.graph
    nodes = {node.name: node for node in graph.nodes}
    early: set[str] = set()
    pending = [nodes[name] for name in first]
    while pending:
        node = pending.pop()
        if node.name not in early:
            early.add(node.name)
            pending += node.all_input_nodes
    names = list(partition(program, [Device("all", 1 << 40)], passes=False).nodes)
    parts = [[name for name in names if name in early], [name for name in names if name not in early]]
    devices = [Device("a", 1 << 40), Device("b", 1 << 40)]
    return partition(program, devices, "aot", partitions=parts, passes=False)


def test_subgraph_creation(build: Build) -> None:
    """Stages keep the metadata of their nodes: lines of the model, modules, names of weights."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.out = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            z = self.linear(x + y).clamp(min=0.0, max=1.0)
            return self.out(z).topk(2, -1).values

    model, args = Model().eval(), (torch.randn(3, 4), torch.randn(3, 4))
    program = aot_export(model, args)
    cut = at(program, "clamp")
    first, second = split(program, cut).stages
    for stage in (first, second):
        for node in stage.program.graph.nodes:
            if node.op == "call_function":
                original = next(n for n in program.graph.nodes if n.name == node.name)
                assert node.meta.keys() == original.meta.keys()
                assert node.meta["nn_module_stack"] == original.meta["nn_module_stack"]
                assert "test_fx.py" in node.meta["stack_trace"]
                assert node.meta["val"] is original.meta["val"]
    check_stages(build, model, args, cut, without=("all",))


def test_split_module_dead_code(build: Build) -> None:
    """What nothing reads is in no stage, even where a partition names it."""

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a = x * 2
            torch.sort(a)
            b = a.cumsum(0) + 1
            b.exp().tan()
            return b.sin()

    program = aot_export(Model(), (torch.randn(3),))
    graph = program.graph
    # Captured graphs have no dead code: what a pass left behind.
    editable = program.editable()
    sin = next(node for node in editable.graph.nodes if node.name == "sin")
    with editable.graph.inserting_before(sin):
        dead = editable.graph.call_function(torch.ops.aten.exp.default, (sin.args[0],))
    dead.meta["val"] = sin.meta["val"]
    program = program.with_graph(editable)
    assert len(program.graph.nodes) == len(graph.nodes) + 1
    cut = at(program, "cumsum")
    assert dead.name in cut.stages[1].nodes
    first, second = split(program, cut).stages
    names = {node.name for stage in (first, second) for node in stage.program.graph.nodes}
    assert dead.name not in names
    assert {"cumsum", "sin"} <= names
    check_stages(
        build, Model(), (torch.randn(3),), at(aot_export(Model(), (torch.randn(3),)), "cumsum"), without=("all",)
    )


def test_split_module_kwargs_expansion(build: Build) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, **kwargs: Tensor) -> Tensor:
            return torch.cumsum(x + kwargs["foo"], 0) * kwargs["bar"]

    model, x = Model(), torch.randn(3)
    given = {"foo": torch.randn(3), "bar": torch.randn(3)}
    program = aot_export(model, (x,), given)
    archive = build(model, (x,), given, partitioning=at(program, "cumsum"), without=("all",))
    first, second = steps(archive)
    # The second stage reads an argument by name and a value.
    assert (len(first.inputs), len(second.inputs)) == (2, 2)
    assert_close(archive(x, foo=given["foo"] * 2, bar=given["bar"]), model(x, foo=given["foo"] * 2, bar=given["bar"]))


def test_split_module_default_arg(build: Build) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, y: Tensor, scale: float = 2.0, other: Tensor | None = None) -> Tensor:
            z = torch.cumsum(x * scale, 0)
            return z + y if other is None else z + other

    model, args = Model(), (torch.randn(3), torch.randn(3))
    program = aot_export(model, args)
    archive = check_stages(build, model, args, at(program, "cumsum"), without=("all",))
    assert_close(archive(*args), model(*args))


def test_subgraph_uniquename(build: Build) -> None:
    """Names are unique in each stage and among the values, whatever names modules and attributes have."""

    class Model(nn.Module):
        add: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("add", torch.randn(4))
            self.cumsum, self.add_1 = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, cumsum: Tensor, add_1: Tensor) -> tuple[Tensor, Tensor]:
            a = cumsum + self.add
            b = torch.cumsum(self.cumsum(a) + add_1, 0)
            c = torch.cumsum(self.add_1(b) + a, 0)
            return c + b, torch.cumsum(a + add_1, 0)

    model, args = Model().eval(), (torch.randn(4, 4), torch.randn(4, 4))
    program = aot_export(model, args)
    names = [node.name for node in program.graph.nodes if node.op == "call_function"]
    cut = at(program, names[len(names) // 2])
    archive = check_stages(build, model, args, cut, without=("all",))
    (entry,) = read_manifest(Path(archive.path)).entries
    values = [value.name for value in entry.variants[0].implementations[0].values]
    assert len(set(values)) == len(values) >= 1
    for stage in split(program, cut).stages:
        graph = [node.name for node in stage.program.graph.nodes]
        assert len(set(graph)) == len(graph)


def test_split_qualname_mapping(build: Build) -> None:
    """The weights of each stage have the names of the model's, also where passes have made new ones of them."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(width, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.norm(self.conv(x)))

    model = nn.Sequential(Block(3), nn.Sequential(Block(4), nn.Flatten(), nn.Linear(64, 5))).eval()
    args = (torch.randn(2, 3, 8, 8),)
    program = aot_export(model, args)
    found = partition(program, [Device("a", MB), Device("b", MB)], "mapping", mapping={"0": "a", "1": "b"})
    state = set(model.state_dict())
    by_stage = [{name for names in stage.weights.values() for name in names} for stage in found.stages]
    assert by_stage[0] | by_stage[1] <= state
    assert {name.split(".")[0] for name in by_stage[0]} == {"0"}
    assert {name.split(".")[0] for name in by_stage[1]} == {"1"}
    assert {"0.conv.weight", "0.norm.running_mean"} <= by_stage[0]
    assert {"1.0.conv.weight", "1.2.weight", "1.2.bias"} <= by_stage[1]
    archive = check_stages(build, model, args, found)
    manifest = read_manifest(Path(archive.path))
    for step, names in zip(steps(archive), by_stage, strict=True):
        stored = {source for index in step.module.constants for source in manifest.constants[index].sources}
        assert stored == names


def test_subgraph_trivial_resnet(build: Build) -> None:
    from transformers import AutoModelForImageClassification, ResNetConfig

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [16, 32, 48, 64]
            config = ResNetConfig(embedding_size=16, hidden_sizes=sizes, depths=[2, 2, 2, 2], layer_type="basic")
            config.num_labels = 10
            self.model = AutoModelForImageClassification.from_config(config)

        def forward(self, x: Tensor) -> Tensor:
            return self.model(pixel_values=x, return_dict=False)[0]

    torch.manual_seed(0)
    model, args = Model().eval(), (torch.randn(2, 3, 64, 64),)
    shapes = {"x": {0: B}}
    program = aot_export(model, args, dynamic_shapes=shapes)
    stages = "model.resnet.encoder.stages"
    mapping = {"": "d", "model.resnet.embedder": "a", f"{stages}.0": "a", f"{stages}.1": "b", f"{stages}.2": "c"}
    devices = [Device(name, 64 * MB) for name in "abcd"]
    found = partition(program, devices, "mapping", mapping=mapping)
    assert [stage.device.name for stage in found.stages] == ["a", "b", "c", "d"]
    archive = check_stages(build, model, args, found, dynamic_shapes=shapes)
    for batch in (1, 5, 32):
        x = torch.randn(batch, 3, 64, 64)
        with torch.no_grad():
            assert_close(archive(x), model(x))
