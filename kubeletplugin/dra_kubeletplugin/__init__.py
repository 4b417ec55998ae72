"""A DRA kubelet plugin in Python, for any driver: write three methods, get the rest."""
