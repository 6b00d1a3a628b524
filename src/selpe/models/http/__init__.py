"""Models behind servers that speak the OpenAI protocol."""
