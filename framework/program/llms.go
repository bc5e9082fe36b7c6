package program

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const llmsHead = `# Waybill

> A transactional outbox for Go: an application publishes notifications inside its own database transaction,
> and forwarders deliver each of them to the sinks that its type is routed to.
`

var (
	link = regexp.MustCompile(`\[([^\]]+)\]\(([^):#]*)[^)]*\)`)
	// sentence is the first one of a page that has no markup in front of it.
	sentence = regexp.MustCompile(`(?m)^\n([A-Z\x60](?:[^|\n]|\n[^\n#])+?)[.:](?:\s|$)`)
)

// llms returns the text of llms.txt, as https://llmstxt.org describes it: the pages that the README.md
// of a folder lists, each with the text behind it there, or else with its own first sentence.
func llms(folder string) (string, error) {
	list, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(llmsHead)
	pages, _, _ := strings.Cut(string(list), "\n## Words")
	for line := range strings.SplitSeq(strings.ReplaceAll(pages, "\n  ", " "), "\n") {
		if heading, is := strings.CutPrefix(line, "## "); is {
			fmt.Fprintf(&b, "\n## %s\n\n", heading)
		}
		if !strings.HasPrefix(line, "- ") {
			continue
		}
		links := link.FindAllStringSubmatch(line, -1)
		_, listed, _ := strings.Cut(line, "): ")
		for _, to := range links {
			page, err := os.ReadFile(filepath.Join(folder, to[2]))
			if err != nil {
				return "", err
			}
			about := listed
			if found := sentence.FindSubmatch(page); found != nil && (about == "" || len(links) > 1) {
				about = strings.Join(strings.Fields(link.ReplaceAllString(strings.ReplaceAll(string(found[1]), "**", ""), "$1")), " ")
			}
			fmt.Fprintf(&b, "- [%s](%s): %s\n", to[1], to[2], about)
		}
	}
	return b.String(), nil
}
