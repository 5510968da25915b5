"""The published trace formats: what a file holds, whatever it is wrapped in.

``reading`` opens files and cuts them into lines; ``detecting`` finds the format; ``tables``,
``parquet``, ``requests``, ``benchmark`` and ``openai`` each read one; ``gathering`` makes arrays
or length tables of what they yield. The readers know nothing of what a trace is used for.
"""
