"""Recurrences in C: LSTM, GRU and Elman networks."""
