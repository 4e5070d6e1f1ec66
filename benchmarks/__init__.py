"""Speed and memory of the layers beside torch.nn.GRU, torch.nn.LSTM and the roofline: `make bench`."""
