"""The asynchronous face of the client; `timeslice._sync` is made from it by `hack/unasync`."""
