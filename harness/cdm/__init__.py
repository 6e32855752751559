"""CDM diagnostics: exact on enumerable games, by nested Monte Carlo elsewhere; they read a method, never name one."""
