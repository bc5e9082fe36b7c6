package route

import (
	"maps"
	"slices"
	"strconv"

	"github.com/expr-lang/expr/ast"

	"github.com/waybill-go/waybill/registry"
)

// readsOf returns the places of the payload that an expression reads. What is below a place whose name is computed
// counts as read.
func readsOf(root *ast.Node) []registry.Pointer {
	reads := make(map[ast.Node]registry.Pointer)
	ast.Walk(root, visitor(func(n ast.Node) { // children come first
		switch n := n.(type) {
		case *ast.IdentifierNode:
			if n.Value == "payload" || n.Value == "$env" {
				reads[n] = nil
			}
		case *ast.ChainNode:
			if at, is := reads[n.Node]; is {
				delete(reads, n.Node)
				reads[n] = at
			}
		case *ast.MemberNode:
			at, is := reads[n.Node]
			if !is {
				return
			}
			whole, _ := n.Node.(*ast.IdentifierNode)
			switch step := n.Property.(type) {
			case *ast.StringNode:
				if whole != nil && whole.Value == "$env" { // $env.payload is the payload, and $env.key has none of it
					if delete(reads, n.Node); step.Value == "payload" {
						reads[n] = nil
					}
					return
				}
				at = append(slices.Clip(at), step.Value)
			case *ast.IntegerNode:
				at = append(slices.Clip(at), strconv.Itoa(step.Value))
			default:
				return
			}
			delete(reads, n.Node)
			reads[n] = at
		}
	}))
	return slices.Collect(maps.Values(reads))
}

func (e *expression) readsAt(at registry.Pointer) bool {
	return slices.ContainsFunc(e.reads, at.Overlaps)
}

// Reads reports whether a condition on the way of a type to the sink reads a place of the payload, and which.
func (p *Path) Reads(typ string, at registry.Pointer) (when Step, reads bool) {
	for _, r := range p.rules {
		if p.table.matches(r.pattern, typ) && r.when != nil && r.when.readsAt(at) {
			return Step{Pattern: r.pattern, Rule: r.Rule}, true
		}
	}
	return Step{}, false
}

// Reads reports whether the expression reads a place of the payload.
func (t *Text) Reads(at registry.Pointer) bool { return t != nil && t.text.readsAt(at) }

// Reads reports whether the condition reads a place of the payload.
func (c *Condition) Reads(at registry.Pointer) bool {
	return c != nil && c.when != nil && c.when.readsAt(at)
}
