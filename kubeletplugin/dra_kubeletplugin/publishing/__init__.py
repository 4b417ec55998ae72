"""ResourceSlices: written as the driver wants them, and kept so."""
