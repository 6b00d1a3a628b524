"""Sentence encoders behind one protocol: embedded MiniLM, servers, sentence-transformers, and hashing."""

from selpe.models.encoders.base import Encoder, PublicEncoder

__all__ = ["Encoder", "PublicEncoder"]
