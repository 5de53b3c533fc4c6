"""What `torch.compile` sees of a tuned kernel."""
