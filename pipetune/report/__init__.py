"""Shows a session: terminal, HTML, Markdown, JSON, CSV. What is read comes from `page.page`, as blocks.

Nothing heavy is imported here: rich, Jinja2, pandas and matplotlib load with the format that needs them.
"""
