"""A stand-in for the package smacv2: the part of its public interface that the adapter uses, without a game."""
