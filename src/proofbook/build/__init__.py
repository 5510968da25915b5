"""The book made: notebooks run, pages, the printed book, and the check of all that is shown."""
