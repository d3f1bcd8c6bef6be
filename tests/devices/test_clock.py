"""A round's seconds, by hand."""

from __future__ import annotations

from dataclasses import replace

from fedbench.devices.fitting import round_bytes, round_seconds
from fedbench.types import ClientCost, Device, Sent, ServerCost

PHONE = Device("phone", memory=10, flops=100.0, flops_bf16=400.0, down=50.0, up=5.0)
SERVER = Device("server", memory=10, flops=1000.0, flops_bf16=2000.0, down=1.0, up=1.0)


def test_bytes_flops_and_bytes_each_over_their_rate():
    cost = ClientCost(flops_per_image=20, bytes_down=100, bytes_up=30, memory_bytes=1)
    assert round_seconds(cost, PHONE, SERVER, images=10, last=2, precision="fp32") == (2.0, 2.0, 6.0, 0.0)
    assert round_seconds(cost, PHONE, SERVER, images=10, last=2, precision="bf16").compute == 0.5
    assert round_seconds(cost, PHONE, SERVER, images=10, last=2, precision="fp32", personal_images=5).compute == 3.0
    assert round_seconds(cost, PHONE, SERVER, images=10, last=2, precision="fp32").total == 10.0


def test_what_every_step_sends_and_the_server_computes_counts():
    sent = (Sent("features", up_per_image=4, down_last=10), Sent("weights", up=20, down_after=50))
    cost = ClientCost(20, 0, 20, 1, sent, ServerCost(flops_per_image=300, flops_last=500))
    assert round_bytes(cost, 10, 2) == [70, 60]
    assert round_seconds(cost, PHONE, SERVER, images=10, last=2, precision="fp32") == (1.4, 2.0, 12.0, 4.0)
    # lost work: what steps exchange has crossed all the same, what ends a round has not
    assert round_bytes(cost, 10, 2, arrives=False) == [0, 40]
    lost = round_seconds(cost, PHONE, SERVER, images=10, last=2, precision="fp32", arrives=False)
    assert lost == (0.0, 2.0, 8.0, 3.0)


def test_each_message_takes_a_constant_more():
    """One each way, one for every step that exchanges something, and none where nothing is sent."""
    slow, cost = (
        replace(PHONE, message=0.5),
        ClientCost(flops_per_image=20, bytes_down=100, bytes_up=30, memory_bytes=1),
    )
    given = {"server": SERVER, "images": 10, "last": 2, "precision": "fp32"}
    assert round_seconds(cost, slow, **given) == (2.5, 2.0, 6.5, 0.0)
    assert round_seconds(cost, slow, **given, arrives=False).up == 0.0
    assert round_seconds(replace(cost, bytes_down=0), slow, **given).down == 0.0
    split = ClientCost(20, 0, 20, 1, (Sent("features", up_per_image=4, down_per_image=1), Sent("weights", up=20)))
    assert round_seconds(split, slow, **given, steps=5) == (0.2 + 5 * 0.5, 2.0, 12.0 + 6 * 0.5, 0.0)
