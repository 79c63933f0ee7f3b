"""A LightningModule and its Trainer: the loop is Lightning's, and the step runs in the optimizer's closure."""

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, number):
        inputs, targets = batch
        loss = F.cross_entropy(self.layers(inputs), targets)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


data = DataLoader(TensorDataset(torch.randn(64, 16), torch.randint(4, (64,))), batch_size=8, num_workers=2)
trainer = lightning.Trainer(
    max_epochs=1, accelerator="gpu", devices=1, precision="bf16-mixed", gradient_clip_val=1.0, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Classifier(), data)
