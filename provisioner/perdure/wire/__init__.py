"""The agent's protocol: what is said (messages) and how it is asked (client)."""
