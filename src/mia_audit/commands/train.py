"""`mia-audit train`: train a block of shadow models."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from mia_audit.compute.cards import take_card
from mia_audit.config.load import parse
from mia_audit.config.schema import Mechanism, Training
from mia_audit.errors import Diverged, UserError
from mia_audit.missing import left_out
from mia_audit.pools.files import StoredRecords, read_membership, read_records
from mia_audit.storage import replacing_folder, sha256, write_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool")
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument("--public", type=Path, nargs="?", help="weights to start from; may be left empty")
    parser.add_argument(
        "--spec",
        required=True,
        help='JSON: {"seed", "dataset", "architecture", "mechanism": the section, "mechanism_name", "epsilon", "training"}',
    )
    parser.add_argument("--shadows", required=True, help="first and last shadow model, such as 0-8")
    parser.add_argument("--threads", type=int, default=1, help="threads of this process")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument(
        "--batch", type=int, default=256, help="records in memory at once, per-record gradients included"
    )
    parser.add_argument("--checkpoints", type=Path, help="folder to resume from after a kill; nothing is kept without")
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0, help="least time between two checkpoints")
    parser.add_argument(
        "--keep-going",
        type=int,
        choices=[0, 1],
        default=0,
        help="1: leave out models whose training diverges (0: stop)",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder of the block")


def run(options: argparse.Namespace) -> None:
    """Write shadow-{k}.safetensors for every shadow model of the block, masks of its noise if any, and training.parquet."""
    take_card(options.device)
    import torch

    from mia_audit.models import Inputs, read_architecture, read_start, save_weights, taken_by
    from mia_audit.training.checkpoints import Checkpoint, identity
    from mia_audit.training.device import batch_for, device_for
    from mia_audit.training.masks import save_masks
    from mia_audit.training.progress import reporter
    from mia_audit.training.shadows import SCHEMA, Recipe, train_shadow, training_table

    spec = json.loads(options.spec)
    shadows = _range(options.shadows)
    mechanism = parse(Mechanism, spec["mechanism"], f"mechanisms.{spec['mechanism_name']}")
    training = parse(Training, spec["training"], "training")
    architecture = read_architecture(options.architecture)
    records = read_records(options.pool)
    membership = read_membership(options.pool / "membership.parquet", shadows, len(records.labels))
    public = read_start(architecture, options.public) if options.public else None
    device = device_for(options.threads, options.device)
    batch = batch_for(architecture, options.batch, device)

    def tensors(stored: StoredRecords) -> tuple[Inputs, torch.Tensor]:
        inputs = Inputs(stored.data, taken_by(architecture, stored.facts), architecture["input_shape"], device)
        return inputs, torch.tensor(stored.labels, dtype=torch.long, device=device)

    inputs, labels = tensors(records)
    # read where the mechanism asks for them, and nowhere else: a rule that does not name them must not depend on them
    wanted = spec["mechanism"].get("importance") == "public"
    public_records = tensors(read_records(options.pool, "public")) if wanted else None
    names = (spec["dataset"], spec["architecture"], spec["mechanism_name"], spec["epsilon"])
    epsilon = float(spec["epsilon"])
    purpose = (spec["seed"], "train", *names)
    recipe = Recipe(architecture, public, mechanism, training, epsilon, batch, purpose, public_records)
    same = {
        "spec": spec,
        "torch": torch.__version__,
        "compute": [device, options.threads, options.batch],
        "files": {
            path.name: sha256(path)
            for path in (
                options.pool / "records.parquet",
                options.architecture,
                options.public,
                options.pool / "public.parquet" if wanted else None,
            )
            if path
        },
    }
    kept = [options.checkpoints / f"shadow-{shadow}" for shadow in shadows] if options.checkpoints else []
    tables = []
    diverged: dict[str, str] = {}
    with replacing_folder(options.out) as folder, reporter() as report:
        for column, shadow in enumerate(shadows):
            members = membership[:, column]
            weights, masks = (folder / f"{stem}-{shadow}.safetensors" for stem in ("shadow", "masks"))
            key = identity(shadow=shadow, members=members.nonzero()[0].tolist(), **same)
            checkpoint = Checkpoint(kept[column] if kept else None, key, options.checkpoint_seconds)
            if finished := checkpoint.finished(weights, masks):
                tables.append(finished)
                print(f"shadow {shadow} of {options.shadows}: an earlier run trained it", file=sys.stderr)
                continue
            report.begin(f"shadow {shadow} of {options.shadows}", training.epochs, int(members.sum()))
            try:
                trained = train_shadow(recipe, shadow, inputs, labels, members, report.step, checkpoint)
            except Diverged as error:
                if not options.keep_going:
                    where = f"{'/'.join(names[:2])}/{'-eps'.join(names[2:])}"
                    raise UserError(
                        f"shadow {shadow} of {where}: {error}, or leave such models out: compute.keep_going: true"
                    ) from None
                diverged[str(shadow)] = f"diverged in epoch {error.epoch}: {error.what}"
                report.end(f"left out, {diverged[str(shadow)]}")
                continue
            report.end(
                f"train accuracy {trained.train_accuracy:.3f}, test accuracy {trained.test_accuracy:.3f},"
                f" ε {trained.epsilon:.4g} at δ {trained.terms.delta:g}"
            )
            save_weights(trained.model, weights)
            if trained.masks is not None:
                save_masks(trained.masks, masks)
            tables.append(training_table(shadow, trained))
            checkpoint.finish(trained.model, tables[-1], masks if trained.masks is not None else None)
        if any(table["delta"][0].as_py() * table["records"][0].as_py() >= 1 for table in tables):
            print(
                f"warning: mechanisms.{spec['mechanism_name']}.delta is not below 1/(training records)", file=sys.stderr
            )
        rows = (len(shadows) - len(diverged)) * training.epochs
        told = iter(tables or [SCHEMA.empty_table()])
        write_table(folder / "training.parquet", told, "training", rows, left_out(diverged))
    for done in kept:
        shutil.rmtree(done, ignore_errors=True)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise UserError(f"--shadows: first-last was expected, such as 0-8, not '{text}'")
    return range(int(first), int(last) + 1)
