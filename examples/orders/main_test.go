package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readme is where the program is shown, behind this line.
const (
	readme = "../../README.md"
	marker = "<!-- examples/orders/main.go -->\n```go\n"
)

// mostLines is how long the body of main may be: the README promises it.
const mostLines = 25

func Example() {
	main()
	// Output: order.placed: {OrderID:o-17 Product:kite}
}

func TestTheReadmeShowsThisProgramWordForWord(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	text, err := os.ReadFile(readme)
	require.NoError(t, err)

	_, behind, found := strings.Cut(string(text), marker)
	require.True(t, found, "%s has no block behind %q", readme, marker)
	block, _, found := strings.Cut(behind, "\n```\n")
	require.True(t, found, "the block in %s has no end", readme)
	require.Equal(t, string(program), block+"\n", "copy main.go into %s", readme)
}

func TestTheProgramIsShort(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	program, err := parser.ParseFile(files, "main.go", nil, 0)
	require.NoError(t, err)
	for _, declaration := range program.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Name.Name == "main" {
			lines := files.Position(f.Body.Rbrace).Line - files.Position(f.Body.Lbrace).Line - 1
			require.LessOrEqual(t, lines, mostLines)
			return
		}
	}
	t.Fatal("there is no main")
}
