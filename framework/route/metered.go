package route

import (
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
)

// metered adds the counting to an expression: its nodes then call functions of the environment,
// whose names begin with "__".
type metered struct{}

// replaced are builtins whose cost does not follow from the size of their arguments. The environment
// has functions with their names; two are not available at all.
var replaced = []expr.Option{
	expr.DisableBuiltin("replace"), expr.DisableBuiltin("repeat"), expr.DisableBuiltin("join"), expr.DisableBuiltin("trim"),
	expr.DisableBuiltin("now"),  // the result must depend on the notification alone
	expr.DisableBuiltin("uniq"), // takes time with the square of the list's length
}

// waysOf has the builtins that do not go through everything inside of their arguments. Those that
// are -1 take the same time for any argument.
var waysOf = map[string]int{
	"abs": -1, "ceil": -1, "floor": -1, "round": -1, "type": -1, "first": -1, "last": -1,
	"len": byText, "int": byText, "float": byText, "get": byText, "take": byText,
	"keys": byElement, "values": byElement, "toPairs": byElement, "reverse": byElement, "concat": byElement, "count": byElement, "sum": byElement,
	"toJSON": byIndented, "sort": byOrder, "date": byZone, "timezone": byZone,
}

// Visit adds the counting to one node, whose children were visited before.
func (metered) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.PredicateNode: // the body of a loop
		if _, done := n.Node.(*ast.SequenceNode); !done || !isOurs(n.Node.(*ast.SequenceNode).Nodes[0]) {
			n.Node = &ast.SequenceNode{Nodes: []ast.Node{call("__step", &ast.IntegerNode{Value: 1 + nodesIn(n.Node)/nodesOfUnit}), n.Node}}
		}
	case *ast.BinaryNode:
		operator(node, n)
	case *ast.BuiltinNode:
		builtin(n)
	case *ast.CallNode:
		function(n)
	case *ast.MemberNode:
		n.Property = counted(n.Property, byText)
	case *ast.PairNode:
		n.Key = counted(n.Key, byText)
	}
}

func operator(node *ast.Node, n *ast.BinaryNode) {
	ways := [2]int{byText, byText}
	switch n.Operator {
	case "==", "!=":
		if isLiteral(n.Left) || isLiteral(n.Right) {
			return
		}
		ways = [2]int{byContent, byContent}
	case "<", "<=", ">", ">=":
		if isLiteral(n.Left) || isLiteral(n.Right) {
			return
		}
	case "+", "contains", "startsWith", "endsWith":
	case "in":
		if ways[1] = byContent; isLiteral(n.Left) {
			ways[1] = byElement
		}
	case "matches":
		if pattern, constant := n.Right.(*ast.StringNode); constant {
			if !isOurs(n.Left) {
				n.Left = call("__matched", n.Left, &ast.IntegerNode{Value: instructions(pattern.Value)})
			}
			return
		}
		matches := call("__matches", n.Left, n.Right)
		matches.SetLocation(n.Location())
		*node = matches
		return
	default:
		return
	}
	n.Left, n.Right = counted(n.Left, ways[0]), counted(n.Right, ways[1])
}

func builtin(n *ast.BuiltinNode) {
	way, known := waysOf[n.Name]
	if !known {
		way = byContent
	}
	if way < 0 {
		return
	}
	for i, argument := range n.Arguments {
		body, isLoop := argument.(*ast.PredicateNode)
		switch {
		case isLoop && (n.Name == "sortBy" || n.Name == "groupBy"):
			nodes := body.Node.(*ast.SequenceNode).Nodes
			nodes[len(nodes)-1] = counted(nodes[len(nodes)-1], byContent)
		case isLoop, i == 0 && slices.ContainsFunc(n.Arguments, isBody):
			// the rounds are counted
		case way == byZone && !isOurs(argument):
			n.Arguments[i] = count(argument, way)
		default:
			n.Arguments[i] = counted(argument, way)
		}
	}
}

// function counts the arguments of a method, and the value that it belongs to if expr does not know
// its type: a long number.
func function(n *ast.CallNode) {
	if isOurs(n) {
		return
	}
	if method, ok := n.Callee.(*ast.MemberNode); ok && isDynamic(method.Node) {
		method.Node = counted(method.Node, byText)
	}
	for i, argument := range n.Arguments {
		n.Arguments[i] = counted(argument, byContent)
	}
}

func isBody(n ast.Node) bool {
	_, ok := n.(*ast.PredicateNode)
	return ok
}

// counted counts a node's value in a way, unless it is a constant or a number.
func counted(n ast.Node, way int) ast.Node {
	if isLiteral(n) || isOurs(n) {
		return n
	}
	if t := n.Type(); t != nil {
		switch t.Kind() {
		case reflect.Bool, reflect.Int, reflect.Float64:
			return n
		case reflect.String:
			text := call("__text", n)
			text.SetLocation(n.Location())
			return text
		}
	}
	return count(n, way)
}

func count(n ast.Node, way int) ast.Node {
	c := call("__count", &ast.IntegerNode{Value: way}, n)
	c.SetLocation(n.Location())
	return c
}

func isDynamic(n ast.Node) bool {
	t := n.Type()
	return t == nil || t.Kind() == reflect.Interface
}

// isLiteral reports whether a value is part of the expression, and so not large.
func isLiteral(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.StringNode, *ast.ConstantNode:
		return true
	case *ast.UnaryNode:
		return isLiteral(n.Node)
	case *ast.ArrayNode:
		return !slices.ContainsFunc(n.Nodes, func(n ast.Node) bool { return !isLiteral(n) })
	}
	return false
}

// isOurs reports whether a node calls a function that counts.
func isOurs(n ast.Node) bool {
	c, ok := n.(*ast.CallNode)
	if !ok {
		return false
	}
	name, ok := c.Callee.(*ast.IdentifierNode)
	return ok && strings.HasPrefix(name.Value, "__")
}

func call(name string, arguments ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: arguments}
}

func nodesIn(n ast.Node) (nodes int) {
	ast.Walk(&n, visitor(func(ast.Node) { nodes++ }))
	return nodes
}

// instructions returns the length of a pattern's program, which a match goes through for each byte
// in the worst case; 0 if the pattern is not valid.
func instructions(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(program.Inst)
}

// matched counts a match of a text with a pattern of so many instructions.
func (m *meter) matched(text any, instructions int) any {
	if s, ok := text.(string); ok {
		m.spend(len(s)/bytesOfUnit + len(s)*instructions/matchesOfUnit)
	}
	return text
}

// matches is the operator for a pattern that is not constant.
func (m *meter) matches(text, pattern any) bool {
	if text == nil || pattern == nil {
		return false
	}
	m.spend(len(pattern.(string)) * unitsOfPattern)
	compiled, err := regexp.Compile(pattern.(string))
	if err != nil {
		panic(err)
	}
	return compiled.MatchString(m.matched(text, instructions(pattern.(string))).(string))
}

// The functions of an environment that stand for builtins. They panic as those do if an argument is
// of another type.

func (m *meter) replace(text, old, with any, limit ...int) string {
	s, n := m.text(text.(string)), -1
	if len(limit) > 0 {
		n = limit[0]
	}
	found := strings.Count(s, m.text(old.(string)))
	if n >= 0 {
		found = min(found, n)
	}
	m.spend(found * (1 + len(with.(string))/bytesOfUnit))
	return strings.Replace(s, old.(string), with.(string), n)
}

func (m *meter) repeat(text any, n int) string {
	s := text.(string)
	m.spend(min(max(n, 0), budget*bytesOfUnit) * (1 + len(s)) / bytesOfUnit)
	return strings.Repeat(s, n)
}

func (m *meter) join(list any, glue ...string) string {
	between := strings.Join(glue, "")
	var texts []string
	switch list := list.(type) {
	case []string:
		texts = list
	case []any:
		for _, text := range list {
			texts = append(texts, text.(string))
		}
	default:
		panic("join needs a list of texts")
	}
	for _, text := range texts {
		m.spend(1 + (len(text)+len(between))/bytesOfUnit)
	}
	return strings.Join(texts, between)
}

func (m *meter) trim(text any, characters ...string) string {
	s := text.(string)
	if len(characters) == 0 {
		return strings.TrimSpace(m.text(s))
	}
	m.spend(len(s) / bytesOfUnit * (1 + len(characters[0])))
	return strings.Trim(s, characters[0])
}
