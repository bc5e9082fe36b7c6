package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostLines is how long the body of main may be.
const mostLines = 25

func Example() {
	main()
	// Output: order.placed: {OrderID:o-17 Product:kite}
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
