"""The Hugging Face Trainer on a model from its config."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.arange(index, index + 32) % 1000
        return {"input_ids": tokens, "labels": tokens}


def main():
    model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=1000, n_positions=64))
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=4,
            bf16=True,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            dataloader_num_workers=2,
        )
        Trainer(model=model, args=settings, train_dataset=Texts()).train()


if __name__ == "__main__":
    main()
