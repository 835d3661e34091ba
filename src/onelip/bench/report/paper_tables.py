"""Tables in the form that the paper prints them in, from its own results or from ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from onelip.bench.published import published_epochs, published_state_of_the_art
from onelip.bench.report.method_style import size_order
from onelip.bench.report.report_table import METHOD, Column, ReportTable, scientific, three_digits, words
from onelip.bench.report.study_rows import DiagnosedNetwork, StudyResults
from onelip.bench.report.trained_models import TrainedModel, longest_budget, main_times
from onelip.protocol import RADIUS_NUMERATORS, SIZES

SANDWICH_GRADIENTS = (
    ("stem", "First Conv", 3.36e-7),
    ("stem_activation", "Activation", 3.36e-7),
    ("block1", "Downsize Block(3)", 3.79e-6),
    ("block2", "Downsize Block(3)", 5.56e-5),
    ("block3", "Downsize Block(3)", 7.83e-4),
    ("block4", "Downsize Block(3)", 8.15e-3),
    ("block5", "Downsize Block(1)", 1.04e-1),
    ("linear", "Linear", 1.82e-1),
)
"""Name here, name and gradient norm in the paper's table of ConvNet XS with Sandwich layers, 32 images."""


def size_table(name: str, title: str, models: Sequence[TrainedModel]) -> ReportTable:
    """Methods as rows, sizes as columns, at the longest budget: the paper's main table."""
    compared = [model for model in longest_budget(models) if model.has_guarantee]
    found = {(m.network.dataset, m.network.method, m.network.size_name): m for m in compared}
    sizes = sorted({size for _, _, size in found}, key=size_order)
    rows = []
    for dataset, method in dict.fromkeys((dataset, method) for dataset, method, _ in sorted(found)):
        line = [found.get((dataset, method, size)) for size in sizes]
        accuracies = (model and model.accuracy for model in line)
        rows.append((method, dataset, *accuracies, *(model and model.certified_36 for model in line)))
    columns = [Column(size, group, best="highest") for group in ("Accuracy [%]", "Certified [%]") for size in sizes]
    budgets = ", ".join(sorted({model.budget.name for model in compared}))
    return ReportTable(
        name,
        "",
        title,
        f"Accuracy and certified accuracy at radius 36/255 after {budgets}; ± is the standard error.",
        (METHOD, words("Data set"), *columns),
        rows,
        best_within=("Data set",),
    )


def budget_table(name: str, title: str, models: Sequence[TrainedModel]) -> ReportTable:
    """Learning rate, weight decay and accuracies for every budget: the tables of the paper's appendix."""
    groups: dict[tuple[str, str], dict[str, TrainedModel]] = defaultdict(dict)
    for model in sorted(models, key=lambda m: m.budget.hours or 0.0):
        if model.is_usual and model.accuracy is not None:
            groups[model.network.method, model.network.size_name][model.budget.name] = model
    budgets = list(dict.fromkeys(budget for group in groups.values() for budget in group))
    rows = []
    for (method, size), group in sorted(groups.items(), key=lambda item: (item[0][0], size_order(item[0][1]))):
        run = next(iter(group.values())).runs[0]
        line = [group.get(budget) for budget in budgets]
        accuracies = (model and model.accuracy for model in line)
        certified = (model and model.certified_36 for model in line)
        rows.append((method, size, run.learning_rate, run.weight_decay, *accuracies, *certified))
    columns = [Column("LR", show=scientific), Column("WD", show=scientific)]
    columns += [Column(budget, group) for group in ("Accuracy [%]", "Certified [%]") for budget in budgets]
    caption = "Certified accuracy at radius 36/255; learning rate and weight decay are those of the shortest budget."
    return ReportTable(name, "", title, caption, (METHOD, words("Size"), *columns), rows)


def published_epoch_table() -> ReportTable:
    """Epochs in two hours on the paper's GPU."""
    found = {(row.key, row.dataset, row.size): row.epochs for row in published_epochs()}
    return _epoch_table("epochs-published", "on the paper's A100", found, ("cifar", "tiny-imagenet"))


def own_epoch_table(study: StudyResults) -> ReportTable:
    """Epochs that two hours would have on the machine that a study has timed."""
    times = main_times(study)
    found = {
        (row.network.method, row.network.dataset, row.network.size_name): round(7200 / row.epoch_seconds)
        for row in times
    }
    where = f"on {times[0].hardware}" if times else ""
    return _epoch_table("epochs-ours", where, found, tuple(dict.fromkeys(dataset for _, dataset, _ in found)))


def _epoch_table(
    name: str, where: str, found: Mapping[tuple[str, str, str], int | None], datasets: tuple[str, ...]
) -> ReportTable:
    places = [
        (dataset, size) for dataset in datasets for size in SIZES if any(key[1:] == (dataset, size) for key in found)
    ]
    methods = sorted({method for method, _, _ in found})
    rows = [(method, *(found.get((method, *place)) for place in places)) for method in methods]
    columns = [Column(size, dataset) for dataset, size in places]
    return ReportTable(name, "", f"Epochs in two hours {where}", "Batches of 256.", (METHOD, *columns), rows)


def published_literature_table() -> ReportTable:
    """CIFAR-10 in the papers of the methods themselves."""
    rows = [
        (
            r.key,
            r.model,
            r.clean_accuracy,
            r.certified_36,
            r.certified_72,
            r.certified_108,
            r.certified_255,
            r.parameters_millions,
        )
        for r in published_state_of_the_art()
    ]
    columns = (METHOD, words("Model"), *_radius_columns(), Column("M parameters", show=three_digits))
    return ReportTable("literature-published", "", "The literature on CIFAR-10", "In %.", columns, rows)


def own_literature_table(models: Sequence[TrainedModel]) -> ReportTable:
    """Our best model of each method on CIFAR-10, at all radii."""
    best: dict[str, TrainedModel] = {}
    for model in longest_budget(models):
        share, before = model.certified_36, best.get(model.network.method)
        if model.network.dataset == "cifar10" and share and model.has_guarantee:
            held = before.certified_36 if before else None
            if held is None or share.mean > held.mean:
                best[model.network.method] = model
    rows = [
        (method, m.label, m.accuracy, *(m.certified.get(radius) for radius in RADIUS_NUMERATORS))
        for method, m in best.items()
    ]
    columns = (METHOD, words("Model"), *_radius_columns())
    return ReportTable("literature-ours", "", "Our best models on CIFAR-10", "In %, proven.", columns, rows)


def _radius_columns() -> list[Column]:
    radii = [f"{numerator}/255" for numerator in RADIUS_NUMERATORS]
    return [Column("Accuracy"), *(Column(radius, "Certified at") for radius in radii)]


def published_gradient_table() -> ReportTable:
    """What the paper prints of Sandwich."""
    rows = [(theirs, ours, norm) for ours, theirs, norm in SANDWICH_GRADIENTS]
    columns = (words("Layer"), words("Here"), Column("Gradient norm", show=scientific))
    title = "Vanishing gradients of Sandwich, ConvNet XS"
    return ReportTable("gradients-published", "", title, "32 images.", columns, rows)


def own_gradient_table(networks: Sequence[DiagnosedNetwork]) -> ReportTable:
    """Norms of the gradient at the same places, for the published layers and for ours."""
    rows = []
    for ours, theirs, _ in SANDWICH_GRADIENTS:
        cells = []
        for network in networks:
            at = [layer.gradient_norm for layer in network.layers if layer.path.split(".")[0] == ours]
            cells.append(at[-1] if at else None)
        rows.append((theirs, ours, *cells))
    columns = [
        Column(f"{network.setting} layers, {network.network.size_name}", "Gradient norm", show=scientific)
        for network in networks
    ]
    title = "Gradients of Sandwich in onelip"
    return ReportTable("gradients-ours", "", title, "32 images.", (words("Layer"), words("Here"), *columns), rows)
