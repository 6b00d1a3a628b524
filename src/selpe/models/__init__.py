"""Language models behind one protocol: embedded, llama.cpp, OpenAI-compatible servers, transformers, and a fake."""

from selpe.models.base import Answer, Capabilities, ChatModel, Message, Request

__all__ = ["Answer", "Capabilities", "ChatModel", "Message", "Request"]
