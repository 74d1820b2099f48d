"""Training: objective, schedule, loop, checkpoints, validation and reporting.

(Named `training` so that `kutta.train` can be the function.)
"""
