"""A network in PyTorch Lightning: pip install lightning."""

import lightning
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """A perceptron with one hidden layer."""

    def __init__(self, columns, classes, width=32, learning_rate=1e-2):
        super().__init__()
        self.learning_rate = learning_rate
        self.layers = nn.Sequential(nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, rows):
        return self.layers(rows)

    def training_step(self, batch, number):
        rows, labels = batch
        return nn.functional.cross_entropy(self(rows), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.learning_rate)


def build(shape, classes, **parameters):
    return Classifier(shape[0], classes, **parameters)


def train(task):
    model = build(task.records.shape[1:], len(task.classes), **task.parameters)
    rows = torch.from_numpy(task.records[task.members])
    labels = torch.from_numpy(task.labels[task.members]).long()
    loader = DataLoader(TensorDataset(rows, labels), batch_size=task.training.batch, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=task.training.epochs,
        accelerator="cpu" if task.device == "cpu" else "gpu",
        devices=1,
        plugins=[LightningEnvironment()],  # a job trains by itself, on a cluster too
        enable_checkpointing=False,  # they lack the state of the random generators: a resumed training would differ
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    return model
