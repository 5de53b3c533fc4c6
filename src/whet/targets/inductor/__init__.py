"""What Inductor, the compiler behind `torch.compile`, would tune by itself."""
