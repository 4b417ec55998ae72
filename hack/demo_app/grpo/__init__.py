"""A small, real GRPO training program: numpy is the kernel, all training state lives in device memory.

It is written as a user of Timeslice would write it: `grpo.__main__` is an ordinary RL loop in which one decorator marks
the function that needs the accelerator. Nothing else in here knows of time slicing.
"""
