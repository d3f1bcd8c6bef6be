"""The machine a result was made on, and what is installed there. Without torch."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import os
import platform
import re
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

UNKNOWN = "unknown"
# Environment variables of torch, oneDNN, MKL, OpenBLAS and numpy that choose among kernels.
INSTRUCTIONS = (
    "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES",
)  # fmt: skip
REF = re.compile(r"ref: (refs/(?!.*\.\.)\S+)")
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
STRICT = {"MKL_CBWR": "AUTO,STRICT"}
HUB = "https://huggingface.co"
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu() -> str:
    """The processor's name as the system gives it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def vendor() -> str:
    """The processor's maker as it names itself: `AuthenticAMD`, `GenuineIntel`, ..., or nothing."""
    return _cpuinfo("vendor_id") or platform.processor()


def has_avx512() -> bool:
    """Whether the processor computes on 512 bits at once."""
    return "avx512f" in _cpuinfo("flags").split()


def same_bits() -> dict[str, str]:
    """What a process needs in its environment, before it loads torch, so that equal products have equal bits.

    On Intel's processors the sums of MKL depend on where in memory a tensor begins, unless it is asked for more.
    """
    return dict(STRICT) if vendor() == "GenuineIntel" else {}


def instructions() -> dict[str, str]:
    """The settings by which libraries are told to compute with other instructions, and thus to other bits, than they
    choose by themselves; without those that a worker has anyway."""
    given = {name: os.environ.get(name, "").strip() for name in INSTRUCTIONS}
    return {name: value for name, value in given.items() if value and (name, value) not in STRICT.items()}


def _cpuinfo(name: str) -> str:
    """The first value of that name in Linux's list of processors; "" where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def has_gpu() -> bool:
    """Whether a CUDA driver is there; asking torch would take seconds."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES would call each GPU that this process may use, without asking torch."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        named = [one.strip() for one in given.split(",")]
        return list(takewhile(lambda one: one and one != "-1", named))  # CUDA, too, stops at the first that is none
    there = sorted(int(path.name.removeprefix("nvidia")) for path in Path("/dev").glob("nvidia[0-9]*"))
    return [str(number) for number in there] or ["0"] * has_gpu()


def gpu_room(device: torch.device | str) -> int:
    """Bytes that this process can still take of a GPU: what is free of it and of its own share, and what its allocator
    keeps unused."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    reserved, used = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    share = int(torch.cuda.get_per_process_memory_fraction(torch.device(device).index) * total)  # no name, a number
    return max(0, min(free, share - reserved)) + reserved - used


def leave_alone() -> None:
    """Keep what is there now, a million objects once torch is imported, from being looked through for garbage until the
    process ends: there it goes as ever, for triton complains of what outlives it."""
    gc.freeze()
    atexit.register(gc.unfreeze)


def keep_memory() -> None:
    """Let glibc keep freed memory for the next allocation of this process. It would give large blocks back to the
    system, which has to clear them each time: 5 to 6 % of a round. Other C libraries are left as they are."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26)):
            mallopt(parameter, value)


@functools.cache
def hub_answers(seconds: float = 5.0) -> bool:
    """Whether the Hugging Face Hub answers, through a proxy where one is set. A process asks once.

    Args:
        seconds: how long to wait, for its name to be found too.
    """
    import threading
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    answered = []

    def ask() -> None:
        try:
            urlopen(Request(os.environ.get("HF_ENDPOINT") or HUB, method="HEAD"), timeout=seconds).close()
        except HTTPError:  # an answer, too
            answered.append(True)
        except (OSError, ValueError, HTTPException):
            return
        answered.append(True)

    asking = threading.Thread(target=ask, daemon=True)  # a resolver of names knows no timeout
    asking.start()
    asking.join(seconds)
    return bool(answered)


def describe(device: str) -> dict[str, str | int]:
    """What a manifest keeps of a machine. A fact that cannot be read is `unknown`, whatever the reason: no description
    may end a run."""
    facts: dict[str, Callable[[], str | int]] = {
        "device": lambda: device,
        "cpu": cpu,
        "cores": cores,
        "memory_gib": lambda: round(psutil.virtual_memory().total / 2**30),
        "system": lambda: f"{platform.system()} {platform.machine()}",
        "python": platform.python_version,
    }
    if device == "cuda":
        facts["gpu"] = _gpu
    return {name: _known(read) for name, read in facts.items()}


def kernels() -> dict[str, str | int]:
    """What of torch's kernels a processor runs, for the manifest: the instructions, and whether oneDNN is used."""
    import torch

    return {
        "cpu_capability": _known(torch.backends.cpu.get_cpu_capability),
        "mkldnn": _known(lambda: "on" if torch._C._get_mkldnn_enabled() else "off"),
    }


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name()


def _known(read: Callable[[], str | int]) -> str | int:
    try:
        return read()
    except Exception:  # of the system, of psutil or of a driver
        return UNKNOWN


def children(pid: int) -> list[int]:
    """The processes that a process of one's own has started or adopted."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return sorted(int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split())
    except OSError:  # no Linux, or one that does not tell, or a thread has just ended
        return sorted(child.pid for child in psutil.Process(pid).children())


@functools.cache
def package_version(name: str) -> str | None:
    """The installed version of a distribution, without importing it; looked up once by a process."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_revision(folder: Path) -> str | None:
    """The commit checked out in a folder, as its files say; None outside a repository.

    Git is not run there: the configuration of a repository that somebody else has made names programs to execute.
    """
    try:
        for above in (folder.resolve(), *folder.resolve().parents):
            if (above / ".git").exists():
                return _head(above / ".git")
    except (OSError, ValueError):  # it cannot be read, or its names have NULs
        pass
    return None


def _head(git: Path) -> str | None:
    """The commit of HEAD. git: the folder, or the file that names it, as in a work tree or a submodule."""
    if git.is_file():
        git = git.parent / _line(git).removeprefix("gitdir: ")
    shared = git / "commondir"
    common = git / _line(shared) if shared.is_file() else git
    head = _line(git / "HEAD")
    for _ in range(5):  # references may name others
        ref = REF.fullmatch(head)
        if ref is None:
            break
        loose = next((place / ref[1] for place in (git, common) if (place / ref[1]).is_file()), None)
        head = _line(loose) if loose else _packed(common / "packed-refs", ref[1])
    return head if COMMIT.fullmatch(head) else None


def _line(file: Path) -> str:
    """The first line of a small file; "" of what is no file."""
    if not file.is_file():
        return ""
    with file.open("rb") as opened:
        return os.fsdecode(opened.read(4096).partition(b"\n")[0]).strip()


def _packed(file: Path, ref: str) -> str:
    """The commit of a reference among those that git has packed into one file; "" where it is not there."""
    if not file.is_file():
        return ""
    with file.open("rb") as opened:
        lines = (line.split() for line in opened)
        return next((line[0].decode("ascii") for line in lines if line[1:] == [os.fsencode(ref)]), "")
