"""Speed and memory of the layers beside torch.nn.GRU, torch.nn.LSTM and the physical floor: `make bench`."""
