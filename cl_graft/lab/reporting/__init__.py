"""The report: runs as one page for a browser, and its figures and tables for papers.

Import from the modules; nothing is loaded here.
"""
