"""Ways to take a process's accelerator state off the devices and to put it back."""
