"""Float32 matmuls, trained; the first argument says how torch is told about TF32."""

import sys

import torch

match sys.argv[1]:
    case "high" | "highest" as precision:
        torch.set_float32_matmul_precision(precision)
    case "allow_tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
    case "fp32_precision":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    case "mixed":
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.matmul.fp32_precision = "ieee"
    case "no convolution":
        torch.backends.cudnn.allow_tf32 = False

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 3, padding=1),
    torch.nn.Flatten(),
    torch.nn.Linear(64 * 64, 4096),
    torch.nn.Linear(4096, 4096),
    torch.nn.Linear(4096, 4096),
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(16384, 3, 8, 8, device="cuda")).sum().backward()
    optimizer.step()
