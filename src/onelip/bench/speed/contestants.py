"""Who takes part: onelip's methods and the layers of other packages, each as a network that can be built."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from onelip.bench.measurement import MemoryUse, Workload, peers, predict_memory
from onelip.bench.measurement.memory import account
from onelip.bench.measurement.workload import build_network, random_batch
from onelip.errors import InvalidInputError
from onelip.layers import MethodInfo, list_methods

ONELIP = "onelip"


@dataclass(frozen=True)
class Contestant:
    """A network on a workload: how to build it, make it ready for inference and count its memory.

    `workload.method` is the name of the network, for layers of another package not one of onelip's methods.
    """

    workload: Workload
    title: str
    package: str
    build: Callable[[], nn.Module]
    for_inference: Callable[[nn.Module], nn.Module]
    memory: Callable[[], MemoryUse]

    @property
    def key(self) -> str:
        """Name in tables and on the command line."""
        return self.workload.method


def choose_contestants(names: Sequence[str], with_peers: bool, workload: Workload) -> list[Contestant]:
    """The methods and peers of these names, all methods if there are no names; `with_peers` adds every peer."""
    methods = {method.key: method for method in list_methods()}
    others = {peer.key: peer for peer in peers.PEERS}
    wanted = dict.fromkeys(name.lower() for name in names)
    for name in wanted:
        if name not in methods and name not in others:
            raise InvalidInputError(f"there is no method {name!r}, use some of {', '.join([*methods, *others])}")
    ours = [method for key, method in methods.items() if not wanted or key in wanted]
    theirs = [peer for key, peer in others.items() if with_peers or key in wanted]
    if theirs:
        peers.peer_versions()  # says what is missing before anything is measured
    return [*(_ours(method, workload) for method in ours), *(_theirs(peer, workload) for peer in theirs)]


def _ours(method: MethodInfo, workload: Workload) -> Contestant:
    workload = replace(workload, method=method.key)
    return Contestant(
        workload=workload,
        title=method.title,
        package=ONELIP,
        build=functools.partial(build_network, workload),
        for_inference=nn.Module.eval,
        memory=functools.partial(predict_memory, workload),
    )


def _theirs(peer: peers.Peer, workload: Workload) -> Contestant:
    build = functools.partial(peers.build_peer_network, peer, workload)
    return Contestant(
        workload=replace(workload, method=peer.key),
        title=peer.key,
        package=peer.package,
        build=build,
        for_inference=peers.for_inference,
        # Counted in a real run: some of them look at values, which a prediction does not have.
        memory=lambda: account(build(), *random_batch(workload)),
    )
