"""Tables in the form that the paper prints them in, from its own results or from ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onelip.bench.paper.architecture import (
    ARCHITECTURE,
    BLOCK,
    COUNTED,
    PARAMETERS,
    SANDWICH_GRADIENTS,
    built_layers,
    built_sizes,
)
from onelip.bench.paper.published import published_epochs, published_state_of_the_art
from onelip.bench.report.method_style import size_order
from onelip.bench.report.report_table import METHOD, SIZE, Column, ReportTable, scientific, three_digits, words
from onelip.bench.report.result_tables import cell, certified_columns, lines_of
from onelip.bench.report.study_rows import DiagnosedNetwork, StudyResults
from onelip.bench.report.trained_models import TrainedModel, longest_budget, main_times
from onelip.protocol import RADIUS_NUMERATORS, SIZES, WIDTHS


def _both_accuracies(places: Sequence[str], **look: Any) -> list[Column]:
    """Accuracy at all places of a line, then certified accuracy at all of them."""
    return [
        Column(place, group, of=cell(place, field), **look)
        for group, field in (("Accuracy [%]", "accuracy"), ("Certified [%]", "certified_36"))
        for place in places
    ]


def budget_table(name: str, title: str, models: Sequence[TrainedModel]) -> ReportTable:
    """Learning rate, weight decay and accuracies for every budget: the tables of the paper's appendix."""
    shown = [model for model in models if model.is_usual and model.accuracy is not None]
    lines = lines_of(
        sorted(shown, key=lambda m: m.budget.hours or 0.0),
        lambda m: (m.network.method, m.network.size_name),
        lambda m: m.budget.name,
    )
    budgets = list(dict.fromkeys(budget for line in lines for budget in line.models))
    rates = (
        Column("LR", show=scientific, of="first.spec.lr"),
        Column("WD", show=scientific, of="first.spec.weight_decay"),
    )
    return ReportTable.of_items(
        sorted(lines, key=lambda line: (line.network.method, size_order(line.network.size_name))),
        name,
        "",
        title,
        "Certified accuracy at radius 36/255; learning rate and weight decay are those of the shortest budget.",
        (METHOD, SIZE, *rates, *_both_accuracies(budgets)),
    )


def published_epoch_table() -> ReportTable:
    """Epochs in two hours on the paper's GPU."""
    found = {(row.key, row.dataset, row.size): row.epochs for row in published_epochs()}
    return _epoch_table("epochs-published", "on the paper's A100", found)


def own_epoch_table(study: StudyResults) -> ReportTable:
    """Epochs that two hours would have on the machine that a study has timed."""
    times = main_times(study)
    networks = {row.network: round(7200 / row.seconds_per_epoch) for row in times}
    found = {(network.method, network.dataset, network.size_name): epochs for network, epochs in networks.items()}
    return _epoch_table("epochs-ours", f"on {times[0].hardware}" if times else "", found)


def _epoch_table(name: str, where: str, found: Mapping[tuple[str, str, str], int | None]) -> ReportTable:
    places = {(dataset, size) for _, dataset, size in found if size in SIZES}
    columns = [
        Column(size, dataset, of=lambda method, dataset=dataset, size=size: found.get((method, dataset, size)))
        for dataset, size in sorted(places, key=lambda place: (place[0], size_order(place[1])))
    ]
    method = replace(METHOD, of=lambda method: method)
    methods = sorted({method for method, _, _ in found})
    title = f"Epochs in two hours {where}"
    return ReportTable.of_items(methods, name, "", title, "Batches of 256.", (method, *columns))


def published_literature_table() -> ReportTable:
    """CIFAR-10 in the papers of the methods themselves."""
    columns = (
        replace(METHOD, of="key"),
        words("Model", "model"),
        Column("Accuracy", of="clean_accuracy"),
        *(Column(f"{radius}/255", "Certified at", of=f"certified_{radius}") for radius in RADIUS_NUMERATORS),
        Column("M parameters", show=three_digits, of="parameters_millions"),
    )
    title = "The literature on CIFAR-10"
    return ReportTable.of_items(published_state_of_the_art(), "literature-published", "", title, "In %.", columns)


def own_literature_table(models: Sequence[TrainedModel]) -> ReportTable:
    """Our best model of each method on CIFAR-10, at all radii."""
    shown = [m for m in longest_budget(models) if m.network.dataset == "cifar10" and m.certified_36 and m.has_guarantee]
    best: dict[str, TrainedModel] = {}
    for model in sorted(shown, key=lambda m: m.certified_36.mean if m.certified_36 else 0.0, reverse=True):
        best.setdefault(model.network.method, model)
    columns = (
        METHOD,
        words("Model", "label"),
        Column("Accuracy", of="accuracy"),
        *certified_columns("Certified at"),
    )
    title = "Our best models on CIFAR-10"
    return ReportTable.of_items(best.values(), "literature-ours", "", title, "In %, proven.", columns)


def gradient_tables(networks: Sequence[DiagnosedNetwork]) -> tuple[list[ReportTable], list[ReportTable]]:
    """What the paper prints of Sandwich, and norms at the same places for the published layers and for ours."""
    columns = []
    for network in networks:
        norms = {layer.path.split(".")[0]: layer.gradient_norm for layer in network.layers}
        title = f"{network.setting} layers, {network.network.size_name}"
        columns.append(Column(title, "Gradient norm", scientific, of=lambda row, norms=norms: norms.get(row[0])))
    layers = (words("Layer", lambda row: row[1]), words("Here", lambda row: row[0]))
    printed = (*layers, Column("Gradient norm", show=scientific, of=lambda row: row[2]))
    title, rows, images = "Vanishing gradients of Sandwich, ConvNet XS", SANDWICH_GRADIENTS, "32 images."
    theirs = ReportTable.of_items(rows, "gradients-published", "", title, images, printed)
    title = "Gradients of Sandwich in onelip"
    ours = ReportTable.of_items(rows if networks else (), "gradients-ours", "", title, images, (*layers, *columns))
    return [theirs], [ours]


def architecture_tables() -> tuple[list[ReportTable], list[ReportTable]]:
    """The paper's three tables of its network, and ours from the network itself."""
    layers, size = (words("Layer"), words("Output")), words("Size")
    widths = [(name, PARAMETERS[name], width) for name, width in WIDTHS.items()]
    printed = [
        ReportTable("architecture-published", "", "Architecture", "Width w.", layers, ARCHITECTURE),
        ReportTable("block-published", "", "Downsize Block(k)", "Input s x s x t.", layers, BLOCK),
        ReportTable("sizes-published", "", "Sizes", "", (size, words("M parameters"), Column("w")), widths),
    ]
    counts = [Column(method, "M parameters", show="{:.2f}".format) for method in COUNTED]
    caption = "BCOP has fewer parameters and Sandwich twice as many, as the paper remarks; the others as many as AOL."
    ours = [
        ReportTable("architecture-ours", "", "ConvNet XS, w = 16", "10 classes.", layers, built_layers()),
        ReportTable("block-ours", "", "Its first block", "s = 32, t = 16.", layers, built_layers("block1", 16)),
        ReportTable("sizes-ours", "", "Sizes", caption, (size, *counts, Column("w")), built_sizes()),
    ]
    return printed, ours
