"""Certify test images, and write a file that proves it.

```
onelip certify cifar10-fast-8m
onelip certify runs/NAME/model.safetensors --samples 20 --proof images.cert
```

`onelip-check images.cert` checks such a file by integer arithmetic, without torch and without onelip.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from onelip.bench.cli.options import FILE
from onelip.bench.cli.saved_network import NetworkOnImages
from onelip.bench.records import dump_json
from onelip.bench.terminal import stages
from onelip.certification import certify


@dataclass(frozen=True, kw_only=True)
class Command(NetworkOnImages):
    proof: Annotated[Path | None, FILE] = None
    """Write the certificate with its proof to this file."""
    arithmetic: Literal["float64", "float32"] = "float64"
    """Programs that the radii hold for; a proof is about the exact function."""

    def run(self) -> int:
        model = self.network().eval()
        [(x, labels)] = self.first_images(model)
        with stages(self.quiet) as tell:
            tell(f"certifying {len(x)} images")
            certificate = certify(model, x, labels, arithmetic=self.arithmetic)
            if self.proof is not None:
                tell(f"writing {self.proof}")
                certificate.save(self.proof, model=model)
        if self.json:
            columns = {"predictions": certificate.predictions, "labels": labels}
            columns |= {"margins": certificate.margins, "radii": certificate.radii}
            print(dump_json({name: column.tolist() for name, column in columns.items()}))
            return 0
        robust = certificate.certified(36 / 255).double().mean()
        print(f"{len(x)} images: accuracy {certificate.correct.double().mean():.1%}, certified at 36/255 {robust:.1%}")
        print(f"radii: median {certificate.radii.median():.4f}, largest {certificate.radii.amax():.4f}")
        if self.proof is not None:
            print(f"{self.proof}: {self.proof.stat().st_size / 2**20:.1f} MiB; check it with onelip-check {self.proof}")
        return 0
