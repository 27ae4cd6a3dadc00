"""A training loop of Opacus's PrivacyEngine with its own Poisson sampler, as a function of records and randomness."""

import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOISE = 4.0
BATCH, EPOCHS = 4, 1


def train(records, randomness, noise=NOISE):
    """Return the weights after an epoch of steps on half of the records each; the last column is the label."""
    from opacus import PrivacyEngine

    torch.manual_seed(randomness % 2**63)
    model = nn.Linear(records.shape[1] - 1, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    data = TensorDataset(torch.from_numpy(records[:, :-1]).float(), torch.from_numpy(records[:, -1]).long())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            data_loader=DataLoader(data, batch_size=BATCH),
            noise_multiplier=noise,
            max_grad_norm=1.0,
        )
        for _ in range(EPOCHS):
            for features, labels in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(features), labels).backward()
                optimizer.step()
    return [value.detach().clone() for value in model.parameters()]


def train_without_noise(records, randomness):
    """Forget the noise."""
    return train(records, randomness, noise=0.0)
