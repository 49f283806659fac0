"""Perdure: Jupyter kernels that outlive their node."""

__version__ = "0.1.0"
