"""Equations that several papers share: targets, mixers, policies."""
