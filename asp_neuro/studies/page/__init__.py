"""The report of a bundle as one HTML file: contents (`contents.py`), curves (`curves.py`), the page (`html.py`)."""
