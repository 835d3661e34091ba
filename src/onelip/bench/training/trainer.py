"""Everything that changes while a network trains, how one step changes it, and how it is saved and restored."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from onelip.bench.data import BatchStream, Splits, evaluation_batches, load, make_augmentation, make_splits
from onelip.bench.data.dataset import generator_for
from onelip.bench.paper.settings import PUBLISHED_SETTINGS
from onelip.bench.records import RunSpec
from onelip.bench.records.machine import usable_device
from onelip.bench.records.new_networks import new_network
from onelip.bench.training.distributed import Ranks, check_bfloat16
from onelip.bench.training.optimisers import OneCycle, find_optimiser, make_optimiser
from onelip.bench.training.validation import Scores, estimate_scores
from onelip.certification import lipschitz_bound
from onelip.errors import UnknownLipschitzConstant
from onelip.factories import find_factory
from onelip.layers import get_method
from onelip.losses import EMMA, CertificateRegularised, LogitAnnealing, OffsetCrossEntropy
from onelip.models import NamedNetwork
from onelip.optim import Lookahead, retract


class DivergedError(Exception):
    """The loss or a weight is not a finite number any more."""


def check_run(config: RunSpec, device: str | None) -> None:
    """Refuse what this machine cannot train, before data are read and before there is a folder."""
    where = usable_device(device)
    find_optimiser(config.optimizer)
    if config.precision == "bfloat16":
        check_bfloat16(torch.device(where))
    if config.network.is_factory:
        find_factory(config.network.model)


def load_splits(config: RunSpec, device: torch.device | str) -> Splits:
    """The data of a run."""
    return make_splits(load(config.network.dataset, device), config.validation_fraction, config.validation_seed)


class Trainer:
    """Network, optimiser, average and stream of batches of one run in this process."""

    def __init__(self, config: RunSpec, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks
        self.splits = load_splits(config, ranks.device)
        self.stream = BatchStream(
            self.splits.train,
            config.batch_size,
            config.seed,
            make_augmentation(config.augmentation, self.splits.train.mean),
            drop_last=config.schedule_epochs is None,  # the published runs train on all images
            rank=ranks.rank,
            world_size=ranks.world_size,
        )
        self.model = _new_model(config).to(ranks.device)
        if config.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload] - missing in the stubs
        self.average = None if config.ema_decay is None else copy.deepcopy(self.model).requires_grad_(False)
        self.parallel = ranks.wrap(self.model)
        self.optimiser = make_optimiser(
            config.optimizer,
            self.model,
            lr=config.lr,
            weight_decay=config.weight_decay,
            momentum=config.momentum,
        )
        self.schedule = OneCycle(config.lr)
        self.lookahead = Lookahead(self.model.parameters()) if config.lookahead else None
        self.loss = _new_loss(config)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=ranks.device)
        self.loss_steps = 0
        self._unchecked: list[float] = []
        self._finite_steps = torch.zeros((), dtype=torch.int64, device=ranks.device)

    def step(self, images: Tensor, labels: Tensor, fraction: float, planned_steps: int) -> float:
        """One update of the weights at this fraction of the schedule; returns the learning rate."""
        config = self.config
        lr = self.schedule.apply(self.optimiser, fraction, planned_steps, cycle_momentum=config.cycle_momentum)
        self._unchecked.append(lr)
        if config.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            scores = self.parallel(images)
        if isinstance(self.loss, EMMA):
            self.loss.progress = fraction
            loss = self.loss(scores.float(), labels, self._pair_constants(self.model))
        else:
            loss = self.loss(scores.float(), labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        if self.lookahead is not None:
            self.lookahead.update()
        retract(self.model)
        self._update_average()
        self.loss_sum += self.ranks.mean(loss.detach())
        self._finite_steps += torch.isfinite(self.loss_sum)
        self.loss_steps += 1
        return lr

    @torch.no_grad()
    def _update_average(self) -> None:
        if self.average is None or self.config.ema_decay is None:
            return
        for average, weight in zip(self.average.parameters(), self.model.parameters(), strict=True):
            average.lerp_(weight, 1 - self.config.ema_decay)
        # Buffers are estimates that belong to the present weights, such as singular vectors: no mean of them.
        for average, buffer in zip(self.average.buffers(), self.model.buffers(), strict=True):
            average.copy_(buffer)

    @property
    def result(self) -> nn.Module:
        """The network to evaluate and keep: the average where one is made."""
        return self.model if self.average is None else self.average

    def check_finite(self, steps: int) -> None:
        """Raise `DivergedError` if the loss was not finite at one of these steps, which the last check has not seen."""
        if bool(torch.isfinite(self.loss_sum)):
            self._unchecked.clear()
            self._finite_steps.zero_()
            return
        before = int(self._finite_steps)
        step, lr = steps - len(self._unchecked) + before + 1, self._unchecked[before]
        raise DivergedError(f"the training loss is not finite at step {step}, where the learning rate is {lr:.3g}")

    def check_weights(self, steps: int) -> None:
        """Raise `DivergedError` if a weight is not finite after so many steps."""
        if (name := self.broken_weight()) is not None:
            lr = self.last_lr
            raise DivergedError(f"{name} is not finite after step {steps}, where the learning rate is {lr:.3g}")

    @property
    def last_lr(self) -> float:
        """Learning rate of the last step."""
        return self.optimiser.param_groups[0]["lr"]

    def broken_weight(self) -> str | None:
        """The name of a weight that is not finite; None if all of them are."""
        tensors = self.model.state_dict().items()
        return next((name for name, tensor in tensors if not bool(torch.isfinite(tensor).all())), None)

    def take_loss(self) -> float:
        """Mean training loss since the last call."""
        mean = float(self.loss_sum) / max(self.loss_steps, 1)
        self.loss_sum.zero_()
        self.loss_steps = 0
        return mean

    def validate(self) -> Scores | None:
        """Scores on the validation images; None if there are none."""
        if not len(self.splits.validation):
            return None
        batches = evaluation_batches(self.splits.validation)
        pairs = self._pair_constants(self.result)
        return estimate_scores(self.result, batches, self.loss, lipschitz=self._lipschitz(), pairs=pairs)

    @staticmethod
    def _pair_constants(model: nn.Module) -> Tensor | None:
        return model.pair_constants() if isinstance(model, NamedNetwork) else None

    def _lipschitz(self) -> float:
        """1 by construction of the method; for a user's own model what can be proven now; infinity for neither."""
        network = self.config.network
        if not network.is_factory:
            method = get_method(network.method)
            published = PUBLISHED_SETTINGS.get(method.key) if self.config.setting == "published" else None
            uncertified = published is not None and published.conv is not None
            return math.inf if method.guarantee == "none" or uncertified else 1.0
        try:
            return lipschitz_bound(self.result, network.data.shape)
        except UnknownLipschitzConstant:
            return math.inf

    def state(self) -> dict[str, Any]:
        """All tensors that the next step depends on, and the running mean of the loss."""
        return {
            "model": dict(self.model.state_dict()),
            "average": None if self.average is None else dict(self.average.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "lookahead": None if self.lookahead is None else self.lookahead.state_dict(),
            "loss_sum": self.loss_sum,
            "loss_steps": self.loss_steps,
            "rng": torch.get_rng_state(),
        }

    def restore(self, state: Mapping[str, Any], step: int) -> None:
        """Continue as if this session had made `step` steps by itself."""
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.lookahead is not None:
            self.lookahead.load_state_dict(state["lookahead"])
        self.loss_sum.copy_(state["loss_sum"])
        self.loss_steps = state["loss_steps"]
        torch.set_rng_state(state["rng"])
        self.stream.seek(step)


def _new_loss(config: RunSpec) -> nn.Module:
    """The offset is a lead of scores, which a 1-Lipschitz network turns into a radius of offset / sqrt(2)."""
    temperature = config.temperature
    match config.loss:
        case "emma":
            return EMMA(config.offset / math.sqrt(2), temperature=temperature)
        case "annealing":
            return LogitAnnealing(config.offset, temperature)
        case "regularised":
            return CertificateRegularised()
        case _:
            return OffsetCrossEntropy(config.offset, temperature)


def _new_model(config: RunSpec) -> nn.Module:
    """A network whose starting values depend on the seed alone; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_for(config.seed, "model").initial_seed())
        return new_network(config.network, config.setting)
