"""Stands in for triton-ascend's backend: Triton's front end as far as TTIR, kernels run by Triton's interpreter."""
