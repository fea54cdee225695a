# The settings of Sphinx for .ci/site, which puts the theme Furo around the documents.
project = html_title = "chanq"
root_doc = "README"
extensions = ["myst_parser"]

# The documents are GitHub's Markdown and nothing else, with its anchors of headings.
myst_enable_extensions = ["linkify", "strikethrough", "tasklist"]
myst_linkify_fuzzy_links = False
myst_disable_syntax = ["front_matter", "myst_block_break", "myst_line_comment", "myst_role", "myst_target"]
myst_heading_anchors = 6
smartquotes = False
suppress_warnings = ["misc.highlighting_failure"]  # … in code stands for lines that are left out

html_theme = "furo"
html_theme_options = {
    "source_repository": "https://github.com/chanq/chanq/",
    "source_branch": "main",
    "source_directory": "",
}
html_copy_source = False
html_show_copyright = False
html_use_index = False
