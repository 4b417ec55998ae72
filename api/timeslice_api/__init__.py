"""The contracts: protos and generated stubs, errors, and the names of environment variables and labels."""
