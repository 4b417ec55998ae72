# Made from timeslice/_async/__init__.py by hack/unasync; do not edit.
"""The synchronous face of the client."""
