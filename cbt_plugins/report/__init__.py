"""Tables -> terminal, JSON and one self-contained HTML file."""
