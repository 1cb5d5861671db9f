"""What is kept of accepted runs, as numbers: pure, without a device and without torch."""
