package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

func TestTheProgramDeliversOnPostgreSQL(t *testing.T) {
	t.Setenv("DATABASE_URL", postgrestest.DSN(t))
	out, in, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = in
	main()
	main() // a second time, in the same database
	os.Stdout = stdout
	require.NoError(t, in.Close())
	text := make([]byte, 1000)
	n, err := out.Read(text)
	require.NoError(t, err)
	once := readmetest.Output(t, "DATABASE_URL=postgres://… go run ./examples/hello")
	require.Equal(t, once+once, string(text[:n]))
}

// mostLines limits the lines of the program, not counting empty lines and comments.
const mostLines = 35

func TestTheProjectsReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, behind, found := strings.Cut(string(text), "<!-- examples/hello/main.go -->\n```go\n")
	require.True(t, found, "README.md has no block for main.go")
	block, _, found := strings.Cut(behind, "\n```\n")
	require.True(t, found, "the block in README.md has no end")
	require.Equal(t, string(program), block+"\n", "copy main.go into README.md")
	lines := 0
	for line := range strings.Lines(string(program)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	require.LessOrEqual(t, lines, mostLines)
}
