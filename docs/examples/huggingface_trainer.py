"""A transformer over the columns of a table, trained by Hugging Face's Trainer: pip install transformers accelerate."""

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Classifier(nn.Module):
    """Every column is a token."""

    def __init__(self, columns, classes, width=16, layers=1):
        super().__init__()
        sizes = {"hidden_size": width, "intermediate_size": 2 * width, "max_position_embeddings": columns}
        config = BertConfig(vocab_size=1, num_hidden_layers=layers, num_attention_heads=2, num_labels=classes, **sizes)
        self.embed = nn.Linear(1, width)
        self.bert = BertForSequenceClassification(config)

    def forward(self, rows, labels=None):
        logits = self.bert(inputs_embeds=self.embed(rows[..., None])).logits
        return logits if labels is None else {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def build(shape, classes, **parameters):
    return Classifier(shape[0], classes, **parameters)


def train(task):
    model = build(task.records.shape[1:], len(task.classes), **task.parameters)
    data = [{"rows": torch.tensor(task.records[row]), "labels": int(task.labels[row])} for row in task.members]
    arguments = TrainingArguments(
        output_dir=str(task.checkpoints),
        num_train_epochs=task.training.epochs,
        per_device_train_batch_size=task.training.batch,
        learning_rate=task.training.learning_rate,
        seed=task.seed % 2**31,
        use_cpu=task.device == "cpu",
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(task.checkpoints)))
    return model
