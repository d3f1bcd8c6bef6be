"""What a stranger's plugin says, as text."""

from __future__ import annotations


def registering(kind: str, name: str, body: str) -> str:
    return f"{body}\n@hookimpl\ndef fedbench_register_{kind}(register):\n    register({name!r}, make)\n"


LAST = "def make(capacities, num_layers, shift: int = 0):\n    '''The last layers.'''\n    import torch\n"
LAST += "    return torch.arange(num_layers) >= num_layers - capacities[:, None]\n"
