"""Makes the pages of docs/ fit a site: links out of docs/ lead to the repository, and a list needs no empty line before it."""
import posixpath
import re

FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\(|(?:href|src|srcset)=\")([^)#:\s\"]+)")
ITEM = re.compile(r"^([^\s|#<>*+-][^\n]*)\n(?=(?:[-*]|\d+\.) )", re.MULTILINE)


def on_page_markdown(markdown: str, page, config, files) -> str:
    def outside(link: re.Match) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link[2]))
        if path.startswith("docs/") and files.get_file_from_path(path.removeprefix("docs/")):
            return link[0]
        return f"{link[1]}{config.repo_url}/blob/main/{path}"

    parts = FENCE.split(markdown)
    parts[::2] = [ITEM.sub(r"\1\n\n", LINK.sub(outside, part)) for part in parts[::2]]
    return "".join(parts)
