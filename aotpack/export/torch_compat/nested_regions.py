"""Functions under `torch.compiler.nested_compile_region`, and the operator that Dynamo makes of their calls.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.invoke_subgraph.invoke_subgraph_placeholder   replaced while a model is traced
  torch.ops.higher_order.invoke_subgraph
  torch.fx.traceback.{annotate, preserve_node_meta}
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.fx.traceback import annotate, preserve_node_meta

__all__ = ["INVOKE_SUBGRAPH", "NESTED_REGIONS", "annotate", "preserve_node_meta"]

INVOKE_SUBGRAPH: Any = torch.ops.higher_order.invoke_subgraph
# The operator hides its module, as an attribute of torch._higher_order_ops.
NESTED_REGIONS: Any = importlib.import_module("torch._higher_order_ops.invoke_subgraph")
