"""What the chapters draw and say of results. Nothing is computed here."""
