package route

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"
)

// An expression with loops can take very long: an any within an any over a payload of 129 KB
// took 22 s. So each round of a loop and the size of each searched value are counted, and an
// expression that uses too much fails. Time is not measured: an expression must not fail
// because the machine is busy.
const (
	// budget bounds all expressions about one notification for one sink together. A unit
	// takes 0.1 to 0.6 µs.
	budget = 200_000

	unitsOfElement = 2 // units for each element of a list
	bytesOfUnit    = 8 // bytes of a text for each unit
)

// meter adds the counting to an expression: each round of a loop calls __step, and each value
// that is searched goes through __sized.
type meter struct{}

// Visit adds the counting to one node, which may have been visited before.
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

// isShort holds the builtins whose time does not depend on the size of their argument.
var isShort = map[string]bool{"len": true, "get": true, "type": true, "first": true, "last": true,
	"int": true, "float": true, "abs": true, "ceil": true, "floor": true, "round": true}

// isLoop reports whether a builtin has a body, whose rounds are counted already.
func isLoop(n *ast.BuiltinNode) bool {
	return slices.ContainsFunc(n.Arguments, func(argument ast.Node) bool {
		_, ok := argument.(*ast.PredicateNode)
		return ok
	})
}

func call(name string, arguments ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: arguments}
}

// sized counts the size of a node's value, unless the node is a call, a range, whose loop is
// counted, or a literal.
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
		panic(fmt.Errorf("it takes too long: more than %d steps; loop over less, or publish the value that the expression computes", budget))
	}
	return true
}
