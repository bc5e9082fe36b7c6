package waybill_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns the pages of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "examples/README.md"}
	for _, pattern := range []string{".github/*.md", "docs/*.md", "docs/*/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		all = append(all, found...)
	}
	return all
}

// compiled is a block of a page with the name of its source file, which may also be a file of a guide.
var compiled = regexp.MustCompile("(?s)<!-- (\\S+\\.(?:go|js|py)) -->\n+(?:<!-- file: \\S+ -->\n)?```(?:go|js|python)\n(.*?)\n```")

func TestCodeInTheDocumentationIsInItsSourceFile(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, match := range compiled.FindAllStringSubmatch(text, -1) {
			require.Contains(t, unindented(read(t, match[1])), unindented(match[2]), "%s: copy the block from %s", page, match[1])
			found++
		}
	}
	require.NotZero(t, found)
}

var (
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	// link is a link to a file of the project, or to a section of a file or of the page itself.
	link = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	// heading is the heading of a section; dropped are the characters that its anchor lacks.
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors of a page's sections.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(read(t, page), -1) {
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")] = true
	}
	return found
}

func TestLinksInTheDocumentationLeadToFilesAndSections(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		text := read(t, page)
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			to := page
			if match[1] != "" {
				to = filepath.Join(filepath.Dir(page), match[1])
			}
			_, err := os.Stat(to)
			require.NoError(t, err, page)
			if match[2] != "" && strings.HasSuffix(to, ".md") {
				require.True(t, anchors(t, to)[match[2]], "%s leads to %s#%s", page, to, match[2])
			}
		}
	}
}

var (
	// apart matches the parts of a page that are not text: code, tables, HTML and generated parts.
	apart = regexp.MustCompile("(?ms)^ *```.*?^ *```$|^<!-- generated [^\n]* begin -->.*?end -->$|^[ \t]*[|<#!][^\n]*$")
	// generated marks a generated page.
	generated = regexp.MustCompile("(?m)^<!-- Generated ")
	// sentences is the end of a sentence that another one follows.
	sentences = regexp.MustCompile(`[.!?][*_)]* [\p{Lu}` + "`" + `*\[]`)
)

func TestALineOfTheDocumentationIsShortOrOneSentence(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		text := read(t, page)
		if generated.MatchString(text) {
			continue
		}
		for _, line := range strings.Split(apart.ReplaceAllString(text, ""), "\n") {
			if utf8.RuneCountInString(line) > 120 {
				require.NotRegexp(t, sentences, line, "%s: break the line", page)
			}
		}
	}
}

var (
	// invariant is an item of a list of invariants.
	invariant = regexp.MustCompile(`(?m)^- \*\*(?:.|\n  )+`)
	// tested is the name of a test, or of a case of the stores' conformance suite.
	tested = regexp.MustCompile("`(Test\\w+|[a-z]\\w+)`")
	// defect is a row of the table of past defects.
	defect = regexp.MustCompile("(?m)^\\| [^*|][^|]+ \\| `?(\\w*)`? \\|$")
	// function is the beginning of a test function.
	function = regexp.MustCompile(`(?m)^func (\w+)\(`)
)

func TestEachInvariantNamesAnExistingTest(t *testing.T) {
	t.Parallel()
	tests, cases := make(map[string]bool), make(map[string]bool)
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		inSuite := strings.HasPrefix(filepath.ToSlash(path), "framework/store/storetest/") && strings.HasSuffix(path, ".go")
		if err != nil || !inSuite && !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range function.FindAllStringSubmatch(string(text), -1) {
			tests[match[1]] = true
			if inSuite {
				cases[match[1]] = true
			}
		}
		return err
	}))
	found := 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, match := range tested.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(match[1], "Test") {
				require.True(t, tests[match[1]], "%s names %s", page, match[1])
			}
		}
		for _, section := range strings.Split(text, "\n#")[1:] {
			title, body, _ := strings.Cut(section, "\n")
			if strings.HasSuffix(title, " Past defects") {
				rows := defect.FindAllStringSubmatch(body, -1)
				require.NotEmpty(t, rows)
				for _, row := range rows {
					require.True(t, tests[row[1]], "%s: no test of: %s", page, row[0])
				}
			}
			if strings.HasSuffix(title, " Invariants") {
				for _, item := range invariant.FindAllString(body, -1) {
					named := slices.ContainsFunc(tested.FindAllStringSubmatch(item, -1), func(match []string) bool {
						return tests[match[1]] && (cases[match[1]] || strings.HasPrefix(match[1], "Test"))
					})
					require.True(t, named, "%s: no test of: %s", page, item)
					found++
				}
			}
		}
	}
	require.Greater(t, found, 50)
}

var (
	// ruled matches the list of rules of a file of the model, and leftOut a command that leaves one out.
	ruled   = regexp.MustCompile(`(?s)\none sig ([\w,\s]+?) extends Rule`)
	leftOut = regexp.MustCompile(`(?m)^run without(\w+) \{ Left\.out = (\w+) and `)
	// leftOutRow is a row of the tables of these rules.
	leftOutRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]+ \\| \\[[^\\]|]+\\]\\([^)|]+\\) \\|$")
)

func TestThePageOfTheModelListsTheRulesThatItLeavesOut(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("docs/internals/model/*.als")
	require.NoError(t, err)
	page := read(t, "docs/internals/model.md")
	var all []string
	for _, file := range files {
		require.Contains(t, page, "](model/"+filepath.Base(file)+")")
		text := read(t, file)
		rules := regexp.MustCompile(`\w+`).FindAllString(ruled.FindStringSubmatch(text)[1], -1)
		var without []string
		for _, match := range leftOut.FindAllStringSubmatch(text, -1) {
			require.Equal(t, match[1], match[2], file)
			without = append(without, match[1])
		}
		require.ElementsMatch(t, rules, without, "%s: each rule is left out once", file)
		all = append(all, without...)
	}
	var listed []string
	for _, match := range leftOutRow.FindAllStringSubmatch(page, -1) {
		listed = append(listed, match[1])
	}
	require.ElementsMatch(t, all, listed)
}

func TestEachExampleHasAReadmeAndIsListed(t *testing.T) {
	t.Parallel()
	list := read(t, "examples/README.md")
	folders, err := filepath.Glob("examples/*/")
	require.NoError(t, err)
	for _, folder := range folders {
		name := filepath.Base(folder)
		if name == "internal" {
			continue
		}
		require.FileExists(t, filepath.Join(folder, "README.md"))
		require.Contains(t, list, "]("+name+")", "examples/README.md does not list %s", name)
	}
}

func TestTheCheckRunsTheCommandsThatTheReadmeBeginsWith(t *testing.T) {
	t.Parallel()
	check := read(t, ".ci/run")
	for _, command := range []string{"make demo", "make test"} {
		require.Regexp(t, `(?m)^`+command+` # `, read(t, "README.md"))
		require.Regexp(t, `(?m)^\t?step '[^']+' (?:kept )?`+command+`$`, check)
	}
}

func TestEachPageCanBeReachedFromTheMap(t *testing.T) {
	t.Parallel()
	list := read(t, "docs/README.md")
	for _, page := range pages(t) {
		if page, below := strings.CutPrefix(filepath.ToSlash(page), "docs/"); below && page != "README.md" {
			require.Contains(t, list, "]("+page+")", "docs/README.md does not list %s", page)
		}
	}
	require.Contains(t, read(t, "README.md"), "](docs/README.md)")
}

// shown is a picture in a page.
var shown = regexp.MustCompile(`(?:src|srcset)="([^":]+)"|!\[[^\]]*\]\(([^):]+)\)`)

func TestEachPictureExistsAndIsShown(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for _, page := range pages(t) {
		for _, match := range shown.FindAllStringSubmatch(read(t, page), -1) {
			picture := filepath.Join(filepath.Dir(page), match[1]+match[2])
			require.FileExists(t, picture, page)
			used[picture] = true
		}
	}
	for _, pattern := range []string{"docs/images/*.*", "docs/images/*/*.*", "docs/benchmarks/*.svg"} {
		pictures, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, picture := range pictures {
			require.True(t, used[picture], "no page shows %s", picture)
		}
	}
}

var (
	// option is a flag of a command in docs/cli.md.
	option = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z-]+)`)
	// command is a command in a block, in an indented line, or in the text.
	command = regexp.MustCompile("(?m)(?:^(?:    )?(?:\\$ )?|`)(waybill [a-z-][^`\n]*)")
	// behind is another command, or a comment, after a command.
	behind = regexp.MustCompile(` [|>&;#(] ?.*|[;…].*`)
)

// commands returns the commands of the program with their flags, from docs/cli.md.
func commands(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found := make(map[string]map[string]bool)
	for _, part := range strings.Split(read(t, "docs/cli.md"), "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		found[name] = make(map[string]bool)
		for _, match := range option.FindAllStringSubmatch(body, -1) {
			found[name]["-"+match[1]], found[name]["--"+match[2]] = true, true
		}
	}
	return found
}

func TestCommandsInTheDocumentationExist(t *testing.T) {
	t.Parallel()
	known := commands(t)
	require.Contains(t, known["waybill parked requeue"], "--dry-run")
	checked := 0
	for _, page := range pages(t) {
		if page == "docs/cli.md" || page == "docs/CHANGELOG.md" { // the reference itself, and removed commands
			continue
		}
		for _, match := range command.FindAllStringSubmatch(read(t, page), -1) {
			if strings.HasPrefix(match[1], "waybill webhook secret") { // a constant of docs/sinks-http.md
				continue
			}
			words := strings.Fields(behind.ReplaceAllString(match[1], ""))
			name, n := "waybill", 1
			for ; n < len(words) && known[name+" "+words[n]] != nil; n++ {
				name += " " + words[n]
			}
			assert.True(t, n > 1 || len(words) == 1 || strings.HasPrefix(words[1], "-"), "%s: %s: no such command", page, match[1])
			for _, word := range words[n:] {
				if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "-") && flag != "-" {
					assert.True(t, known[name][flag], "%s: %s: %s has no flag %s", page, match[1], name, flag)
				}
			}
			checked++
		}
	}
	require.NotZero(t, checked)
}

// message is an error or a log line in docs/troubleshooting.md.
var message = regexp.MustCompile(`(?:^|[^*\w])\*([^*\n]+)\*(?:[^*]|$)`)

func TestMessagesInTheTroubleshootingGuideExist(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			sources.WriteString(read(t, path))
		}
		return err
	}))
	messages := message.FindAllStringSubmatch(read(t, "docs/troubleshooting.md"), -1)
	require.NotEmpty(t, messages)
	for _, match := range messages {
		require.True(t, strings.Contains(sources.String(), match[1]), "no program reports %q", match[1])
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// unindented returns text without the indentation of its lines.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}
