"""Audits: every claim of the theory, measured on a model (paper Table S3 and J.*). A file per family of claims.

Rows are pure functions of recorded looks (`record.py`); nothing is trained but linear probes (`probes.py`).
"""
