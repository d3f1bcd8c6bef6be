"""The devices that fedbench ships, every number with its source. See docs/devices.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.types import Device

# What a program gets, where a source tells the most there is; all of it is ours and said here alone.
SUSTAINED = 0.4  # of a peak FLOP/s: PaLM trained at 46.2 % of it, ViT-22B at 54.9 %, both tuned with great care
OF_PRODUCTS = 0.5  # of measured matrix products: the rest of a training step computes little and moves much
OWN_MEMORY = 0.9  # of a memory that nothing else uses
SHARED_MEMORY = 0.5  # of one that holds an operating system and other programs too
A_PHONES_MEMORY = 0.25  # of one in which training is a guest in the background

MBIT = 1e6 / 8  # bytes/s

SERVER = "server_gpu"  # what the server computes with unless a suite says otherwise


def _network(down: float, up: float) -> dict[str, float]:
    """Of Mbit/s."""
    return {"down": down * MBIT, "up": up * MBIT}


def _peak(flops: float, flops_bf16: float) -> dict[str, float]:
    """What is sustained of peak FLOP/s."""
    return {"flops": SUSTAINED * flops, "flops_bf16": SUSTAINED * flops_bf16}


def _products(flops: float) -> dict[str, float]:
    """What is sustained of measured matrix products in fp32, where no faster bf16 is known."""
    return _training(OF_PRODUCTS * flops)


def _training(flops: float) -> dict[str, float]:
    """Training itself was measured in fp32, and no faster bf16 is known."""
    return {"flops": flops, "flops_bf16": flops}


# What users measured with Ookla's Speedtest, medians in Mbit/s.
BROADBAND = _network(86.04, 11.86)  # fixed lines, USA, second quarter of 2020
MOBILE_4G = _network(29.00, 5.74)  # mobile, USA, second quarter of 2020, when few had 5G
MOBILE_5G = _network(166.13, 21.08)  # 5G, world, third quarter of 2021
BLUETOOTH = _network(1, 1)  # low energy: half of the 2 Mbit/s on the air (Bluetooth Core 5.0), which is ours

_SHIPPED = (
    Device(
        "server_gpu",
        int(OWN_MEMORY * 80e9),
        **_peak(19.5e12, 312e12),
        **_network(10_000, 10_000),
        watts=400,
        source="NVIDIA A100 80GB SXM: data sheet; 10 Gbit/s Ethernet",
    ),
    Device(
        "workstation",
        int(OWN_MEMORY * 24e9),
        **_peak(82.6e12, 165.2e12),
        **BROADBAND,
        watts=450,
        source="NVIDIA GeForce RTX 4090: Ada architecture white paper",
    ),
    Device(
        "laptop",
        int(SHARED_MEMORY * 16e9),
        **_products(2.9e12),
        **BROADBAND,
        watts=20,
        source="Apple M4, 16 GB: matrix products on its GPU, Huebner et al., 2025, arXiv 2502.05317",
    ),
    Device(
        "jetson_agx_orin",
        int(SHARED_MEMORY * 64e9),
        **_peak(5.3e12, 42.5e12),
        **BROADBAND,
        watts=60,
        source="NVIDIA Jetson AGX Orin 64GB: technical brief; bf16 is a quarter of 170 sparse INT8 TOPS",
    ),
    Device(
        "jetson_orin_nano",
        int(SHARED_MEMORY * 8e9),
        **_peak(1.28e12, 10e12),
        **BROADBAND,
        watts=15,
        source="NVIDIA Jetson Orin Nano 8GB: data sheet; bf16 is a quarter of 40 sparse INT8 TOPS",
    ),
    Device(
        "phone_high",
        int(A_PHONES_MEMORY * 12e9),
        **_training(30e9),
        **MOBILE_5G,
        source="a phone of 12 GB: 15 to 30 GFLOP/s of training on CPUs of the Snapdragon 8 series, Das et al., 2022, "
        "arXiv 2202.10100; the upper end",
    ),
    Device(
        "phone_low",
        int(A_PHONES_MEMORY * 4e9),
        **_training(15e9),
        **MOBILE_4G,
        source="a phone of 4 GB: 15 to 30 GFLOP/s of training on CPUs of the Snapdragon 8 series, Das et al., 2022, "
        "arXiv 2202.10100; the lower end",
    ),
    Device(
        "raspberry_pi_5",
        int(SHARED_MEMORY * 8e9),
        **_products(2 * 30.249e9),
        **BROADBAND,
        watts=11,
        source="Raspberry Pi 5, 8 GB: Linpack, github.com/geerlingguy/top500-benchmark/issues/18; fp32 is twice fp64",
    ),
    Device(
        "raspberry_pi_4",
        int(SHARED_MEMORY * 4e9),
        **_products(2 * 11.433e9),
        **BROADBAND,
        watts=5.2,
        source="Raspberry Pi CM4, 4 GB: Linpack, github.com/geerlingguy/top500-benchmark/issues/33; fp32 is twice fp64",
    ),
    Device(
        "microcontroller",
        int(OWN_MEMORY * 320e3),
        **_peak(0.432e9, 0.432e9),
        **BLUETOOTH,
        source="STM32F746, 320 kB, 216 MHz (Lin et al., 2022, arXiv 2206.15472): a multiply-add a cycle",
    ),
)

SHIPPED: Mapping[str, Device] = {device.name: device for device in _SHIPPED}


def device_of(name: str, numbers: Mapping[str, Any]) -> Device:
    """A device by the numbers that a configuration holds."""
    return Device(name, **numbers)


def numbers_of(device: Device) -> dict[str, Any]:
    """What a configuration holds of a device: neither its name nor where its numbers are from."""
    given = {
        "memory": device.memory,
        "flops": device.flops,
        "flops_bf16": device.flops_bf16,
        "down": device.down,
        "up": device.up,
    }
    further = {"watts": device.watts, "message": device.message or None}
    return given | {key: value for key, value in further.items() if value is not None}
