"""Every layer under DistributedDataParallel: two processes get the gradients of one."""

from __future__ import annotations

from pathlib import Path

import ddp_worker
import torch

from onelip.layers import list_methods


def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(ddp_worker.run, args=(2, str(tmp_path)), nprocs=2)  # pyright: ignore[reportPrivateImportUsage]
    found = torch.load(tmp_path / "gradients.pt")
    assert found.pop("refused") == ["shared_transforms takes DDP without find_unused_parameters and static_graph"] * 2
    assert set(found) == {f"{method.key}{way}" for method in list_methods() for way in ("", " shared")}
    for method in list_methods():
        expected = ddp_worker.gradients(ddp_worker.build(method), ddp_worker.batch())
        for name, gradient in expected.items():
            for way in ("", " shared"):
                actual = found[f"{method.key}{way}"][f"module.{name}"]
                assert torch.allclose(actual, gradient, rtol=0, atol=1e-12), (method.key, name, way)
