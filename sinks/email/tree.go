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

// fromDataFunction is what markData adds to expressions; see fromData. Nobody
// writes it in a template.
const fromDataFunction = "_waybill_from_data"

// markData makes every expression that prints something tell what it prints from
// the text around it, except lists of addresses.
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

// isCallOf says whether a pipeline ends with a call of the function.
func isCallOf(pipe *parse.PipeNode, function string) bool {
	last := pipe.Cmds[len(pipe.Cmds)-1]
	name, ok := last.Args[0].(*parse.IdentifierNode)
	return ok && name.Ident == function
}

// walk visits all nodes of a template but those inside of pipelines.
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
