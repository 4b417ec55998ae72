"""The policy: a network that writes an answer character by character, and its gradient by hand.

It sees the prompt and what it has written so far as a fixed row of characters, looks up a vector for each, and two
hidden layers turn the row into a distribution over the next character. All parameters lie in one flat float32 vector,
so that they are one allocation in device memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]  # float32 in training
Tokens: TypeAlias = NDArray[np.int64]

ALPHABET = "0123456789+-*,"  # of prompts and answers
BLANK = len(ALPHABET)  # an empty place in the row
END = len(ALPHABET)  # the action that ends an answer; it shares its number with BLANK, which is never an action
VOCABULARY = len(ALPHABET) + 1


@dataclass(frozen=True)
class Shape:
    """Sizes of the network, in characters and units."""

    prompt: int = 3
    answer: int = 5
    embedding: int = 16
    hidden: int = 256

    @property
    def row(self) -> int:
        """Characters that the network sees at once."""
        return self.prompt + self.answer

    def layers(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Name and shape of every parameter, in the order in which they lie in the flat vector."""
        wide = self.row * self.embedding
        return (
            ("embedding", (VOCABULARY, self.embedding)),
            ("w1", (wide, self.hidden)),
            ("b1", (self.hidden,)),
            ("w2", (self.hidden, self.hidden)),
            ("b2", (self.hidden,)),
            ("w3", (self.hidden, VOCABULARY)),
            ("b3", (VOCABULARY,)),
        )

    @property
    def parameters(self) -> int:
        """How many numbers the flat vector has."""
        return sum(int(np.prod(shape)) for _, shape in self.layers())


def views(flat: Floats, shape: Shape) -> dict[str, Floats]:
    """The parameters by name; they share the memory of the flat vector."""
    named, start = {}, 0
    for name, size in shape.layers():
        end = start + int(np.prod(size))
        named[name] = flat[start:end].reshape(size)
        start = end
    return named


def initial(shape: Shape, rng: np.random.Generator) -> Floats:
    """Random parameters: He scaling, and a last layer so small that the first answers are close to uniform."""
    flat = np.zeros(shape.parameters, np.float32)
    named = views(flat, shape)
    named["embedding"][:] = rng.standard_normal(named["embedding"].shape, np.float32)
    for name, gain in (("w1", 1.0), ("w2", 1.0), ("w3", 0.1)):
        weight = named[name]
        scale = np.float32(gain * np.sqrt(2.0 / weight.shape[0]))
        weight[:] = rng.standard_normal(weight.shape, np.float32) * scale
    return flat


def encode(text: str, places: int) -> Tokens:
    """The text as character numbers, filled up with blanks.

    Raises:
        ValueError: the text is longer than that, or has a character outside the alphabet.
    """
    if len(text) > places:
        raise ValueError(f"{text!r} has more than {places} characters")
    return np.array([ALPHABET.index(c) for c in text] + [BLANK] * (places - len(text)), np.int64)


def decode(tokens: Tokens) -> str:
    """The text before the first end."""
    return "".join(ALPHABET[t] for t in tokens[: _length(tokens)])


def _length(tokens: Tokens) -> int:
    ends = np.flatnonzero(tokens == END)
    return int(ends[0]) if len(ends) else len(tokens)


@dataclass(frozen=True)
class Activations:
    """What the backward pass needs of a forward pass over n rows."""

    rows: Tokens  # (n, row)
    looked_up: Floats  # (n, row * embedding)
    first: Floats  # (n, hidden)
    second: Floats  # (n, hidden)
    log_probs: Floats  # (n, vocabulary)


def forward(flat: Floats, shape: Shape, rows: Tokens) -> Activations:
    """Log-probabilities of the next character for every row."""
    p = views(flat, shape)
    looked_up = p["embedding"][rows].reshape(len(rows), -1)
    first = np.maximum(looked_up @ p["w1"] + p["b1"], 0)
    second = np.maximum(first @ p["w2"] + p["b2"], 0)
    logits = second @ p["w3"] + p["b3"]
    logits -= logits.max(axis=1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return Activations(rows, looked_up, first, second, log_probs)


def backward(flat: Floats, shape: Shape, seen: Activations, d_logits: Floats) -> Floats:
    """The gradient of a loss in the parameters, from its gradient in the logits (n, vocabulary)."""
    p, gradient = views(flat, shape), np.zeros_like(flat)
    g = views(gradient, shape)
    g["w3"][:], g["b3"][:] = seen.second.T @ d_logits, d_logits.sum(axis=0)
    d_second = (d_logits @ p["w3"].T) * (seen.second > 0)
    g["w2"][:], g["b2"][:] = seen.first.T @ d_second, d_second.sum(axis=0)
    d_first = (d_second @ p["w2"].T) * (seen.first > 0)
    g["w1"][:], g["b1"][:] = seen.looked_up.T @ d_first, d_first.sum(axis=0)
    d_looked_up = (d_first @ p["w1"].T).reshape(*seen.rows.shape, shape.embedding)
    np.add.at(g["embedding"], seen.rows, d_looked_up)
    return gradient


def sample(flat: Floats, shape: Shape, prompts: Tokens, rng: np.random.Generator) -> tuple[Tokens, Floats]:
    """Writes one answer for every prompt at temperature 1.

    Returns:
        answers (n, answer), filled with END after the end, and each character's log-probability when it was written.
    """
    count = len(prompts)
    answers = np.full((count, shape.answer), END, np.int64)
    log_probs = np.zeros((count, shape.answer), np.float32)
    writing = np.arange(count)
    for place in range(shape.answer):
        rows = np.concatenate([prompts[writing], _written(answers[writing], place)], axis=1)
        options = forward(flat, shape, rows).log_probs
        chosen = _draw(options, rng.random(count, np.float32)[writing])
        answers[writing, place] = chosen
        log_probs[writing, place] = options[np.arange(len(writing)), chosen]
        writing = writing[chosen != END]
        if not len(writing):
            break
    return answers, log_probs


def _written(answers: Tokens, place: int) -> Tokens:
    seen = answers.copy()
    seen[:, place:] = BLANK
    return seen


def _draw(log_probs: Floats, uniform: Floats) -> Tokens:
    reached = np.cumsum(np.exp(log_probs), axis=1)
    below = (reached < uniform[:, None] * reached[:, -1:]).sum(axis=1)
    return np.asarray(below, np.int64)


def decisions(prompts: Tokens, answers: Tokens) -> tuple[Tokens, NDArray[np.bool_]]:
    """Every row in which a character of an answer was chosen.

    Returns:
        rows (n * answer, row) in the order of answers and places, and which of them (n, answer) were real decisions:
        those up to and with the end.
    """
    count, places = answers.shape
    rows = np.stack([np.concatenate([prompts, _written(answers, place)], axis=1) for place in range(places)], axis=1)
    ended = np.cumsum(answers == END, axis=1) - (answers == END)
    return rows.reshape(count * places, -1), ended == 0
