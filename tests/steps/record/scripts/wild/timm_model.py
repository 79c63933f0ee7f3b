"""A model of timm's with its own optimizer, scheduler, mixup and average of weights."""

import timm
import timm.optim
import timm.scheduler
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.utils import ModelEmaV3, NativeScaler

model = timm.create_model("resnet18", num_classes=10, drop_path_rate=0.1).cuda()
model = model.to(memory_format=torch.channels_last)
average = ModelEmaV3(model, decay=0.999)
optimizer = timm.optim.create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.02)
scheduler, _ = timm.scheduler.create_scheduler_v2(optimizer, sched="cosine", num_epochs=10)
mixup = Mixup(mixup_alpha=0.2, num_classes=10)
criterion, scaler = SoftTargetCrossEntropy(), NativeScaler()
for step in range(3):
    images = torch.randn(4, 3, 64, 64).cuda().to(memory_format=torch.channels_last)
    images, targets = mixup(images, torch.randint(10, (4,)).cuda())
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(images), targets)
    optimizer.zero_grad()
    scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
    average.update(model, step=step)
    scheduler.step_update(step)
