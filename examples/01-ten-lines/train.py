"""The ten-line training script, on data that is made up."""

import torch

import midflight as mf

torch.manual_seed(0)
x = torch.randn(6_000, 16)
dataset = torch.utils.data.TensorDataset(x, torch.tanh(x.sum(1, keepdim=True)))
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = torch.nn.MSELoss()

with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches(dataset, global_batch_size=256, epochs=10):
        loss = criterion(model(batch.x), batch.y)
        job.step(loss)
        job.log(loss=loss)
