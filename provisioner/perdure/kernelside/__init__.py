"""What runs in the user's kernel, in any Python since 3.9. Imports nothing of Perdure."""
