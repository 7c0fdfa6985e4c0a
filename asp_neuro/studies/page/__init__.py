"""The report of a bundle as one HTML file: contents (`contents.py`), what kinds look like (`pictures.py`), page."""
