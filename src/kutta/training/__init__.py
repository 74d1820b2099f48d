"""Finding the parameters: objective, schedule, loop, checkpoints, and the run around them.

(Named `training` so that `kutta.train` is free to be the function.)
"""
