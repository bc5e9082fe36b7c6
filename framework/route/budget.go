package route

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"
)

// Loops over what a notification holds take as long as its publisher wants: an any within
// an any, over a payload of 129 KB, took 22 s. So each round of a loop is counted, and so
// is the size of what is looked through; what adds up to too much fails. It is counted and
// not timed: an expression must not fail because the machine is busy.
const (
	// budget is what all expressions about one notification may take for one sink,
	// together. A unit takes 0.1 to 0.6 µs.
	budget = 200_000

	unitsOfElement = 2 // what one element of a list costs
	bytesOfUnit    = 8 // of a text
)

// meter has the program count what it does: each round of a loop calls __step, and what is
// looked through goes through __sized.
type meter struct{}

// Visit changes one node. Nodes may be visited several times.
func (meter) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.PredicateNode: // the body of a loop
		if _, metered := n.Node.(*ast.SequenceNode); !metered {
			n.Node = &ast.SequenceNode{Nodes: []ast.Node{call("__step"), n.Node}}
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "in":
			n.Right = sized(n.Right)
		case "matches", "contains", "startsWith", "endsWith":
			n.Left = sized(n.Left)
		case "+":
			if accumulator, ok := n.Left.(*ast.PointerNode); ok && accumulator.Name == "acc" {
				n.Left = sized(n.Left)
			}
		}
	case *ast.BuiltinNode:
		if len(n.Arguments) > 0 && !isShort[n.Name] && !isLoop(n) {
			n.Arguments[0] = sized(n.Arguments[0])
		}
	}
}

// isShort has the builtins that take as long whatever the size of their argument.
var isShort = map[string]bool{"len": true, "get": true, "type": true, "first": true, "last": true,
	"int": true, "float": true, "abs": true, "ceil": true, "floor": true, "round": true}

// isLoop says whether a builtin has a body, of which each round is counted.
func isLoop(n *ast.BuiltinNode) bool {
	return slices.ContainsFunc(n.Arguments, func(argument ast.Node) bool {
		_, ok := argument.(*ast.PredicateNode)
		return ok
	})
}

func call(name string, arguments ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: arguments}
}

// sized meters a node, unless it is a call already, a range, which the loop over it
// meters, or as large as the expression says.
func sized(n ast.Node) ast.Node {
	switch n := n.(type) {
	case *ast.CallNode, *ast.ArrayNode, *ast.MapNode, *ast.ConstantNode, *ast.StringNode, *ast.IntegerNode:
		return n
	case *ast.BinaryNode:
		if n.Operator == ".." {
			return n
		}
	}
	return call("__sized", n)
}

func (f *facts) step() bool { return f.spend(1) }

func (f *facts) sized(value any) any {
	switch v := value.(type) {
	case string:
		f.spend(1 + len(v)/bytesOfUnit)
	case []any:
		f.spend(1 + unitsOfElement*len(v))
	}
	return value
}

func (f *facts) spend(units int) bool {
	f.spent += units
	if f.spent > budget {
		panic(fmt.Errorf("it takes too long: more than %d steps; loop over less, or publish with what to decide by", budget))
	}
	return true
}
