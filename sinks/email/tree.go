package email

import "text/template/parse"

// calls returns the names of the templates that a template calls.
func calls(tree *parse.Tree) map[string]bool {
	names := make(map[string]bool)
	walk(tree, func(node parse.Node) {
		if n, ok := node.(*parse.TemplateNode); ok {
			names[n.Name] = true
		}
	})
	return names
}

// fromDataFunction is the name of the function fromData, which markData adds to expressions. Users
// do not write it in templates.
const fromDataFunction = "_waybill_from_data"

// markData adds fromData to every expression that prints something, except lists of addresses, so
// that parseRendered can distinguish values from the text around them.
func markData(tree *parse.Tree) {
	walk(tree, func(node parse.Node) {
		n, ok := node.(*parse.ActionNode)
		if !ok || len(n.Pipe.Decl) > 0 || isCallOf(n.Pipe, addressesFunction) {
			return
		}
		name := parse.NewIdentifier(fromDataFunction).SetPos(n.Pos)
		n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{name}})
	})
}

// isCallOf reports whether a pipeline ends with a call of the function.
func isCallOf(pipe *parse.PipeNode, function string) bool {
	last := pipe.Cmds[len(pipe.Cmds)-1]
	name, ok := last.Args[0].(*parse.IdentifierNode)
	return ok && name.Ident == function
}

// walk visits all nodes of a template, except those inside pipelines.
func walk(tree *parse.Tree, visit func(parse.Node)) {
	if tree != nil {
		walkList(tree.Root, visit)
	}
}

func walkList(list *parse.ListNode, visit func(parse.Node)) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		visit(node)
		switch n := node.(type) {
		case *parse.IfNode:
			walkList(n.List, visit)
			walkList(n.ElseList, visit)
		case *parse.RangeNode:
			walkList(n.List, visit)
			walkList(n.ElseList, visit)
		case *parse.WithNode:
			walkList(n.List, visit)
			walkList(n.ElseList, visit)
		}
	}
}
