package email

import "text/template/parse"

// calls returns the names of the templates that a template calls.
func calls(tree *parse.Tree) map[string]bool {
	names := make(map[string]bool)
	if tree != nil && tree.Root != nil {
		addCalls(tree.Root, names)
	}
	return names
}

func addCalls(list *parse.ListNode, names map[string]bool) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.TemplateNode:
			names[n.Name] = true
		case *parse.IfNode:
			addCalls(n.List, names)
			addCalls(n.ElseList, names)
		case *parse.RangeNode:
			addCalls(n.List, names)
			addCalls(n.ElseList, names)
		case *parse.WithNode:
			addCalls(n.List, names)
			addCalls(n.ElseList, names)
		}
	}
}
