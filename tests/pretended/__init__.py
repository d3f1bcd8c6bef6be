"""A GPU that is none, for tests: what is "on cuda" lies in the CPU's memory and is marked; numbers are real.

    with pretended.gpu(total=2**30) as gpu:
        x = torch.ones(3, device="cuda")          # x.device.type == "cuda", x + torch.ones(3) raises
        gpu.waits                                  # how often, and where, the CPU has waited for it

Enforced are the rules that hold for code which is to run on a GPU: tensors of both sides do not mix, generators draw on
their own side, and other numbers there; what is allocated beyond the process's share raises
torch.cuda.OutOfMemoryError. Not to be seen are races between streams, fragmentation, cuDNN, and how long it takes.

`memory` says what lies there · `rules` and `operators` are the two modes of torch that see Python's calls and every
operator below them, in the backward pass too · `cuda` is what stands for torch.cuda · `worker` brings it into worker
processes.
"""

from pretended.cuda import gpu as gpu
from pretended.device import Gpu as Gpu
