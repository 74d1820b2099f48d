"""`kutta serve`: a translation server with the API of LibreTranslate, and its page.

request -> sentences -> a queue for each model -> batches across clients -> answer or stream

Nothing here imports torch, except the view of the solver (inside.py), which is loaded where torch
and a run directory are there.
"""
