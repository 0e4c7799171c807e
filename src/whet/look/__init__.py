"""The look that pages, reports and plots share: style sheets, templates, and how numbers and hostile text read.

Read `templates/components.html` first.
"""
