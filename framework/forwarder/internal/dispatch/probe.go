package dispatch

// tried remembers the types and keys of deliveries that failed, so that the next probe of an open breaker is something
// else: a destination that refuses one publisher's notifications may take all others.
type tried struct {
	count       int
	types, keys map[string]int // the number of the last failure
}

// maxTried bounds the types and keys that are remembered. With more, all are forgotten.
const maxTried = 10_000

func (t *tried) note(it *item) {
	if t.keys == nil || len(t.keys) >= maxTried || len(t.types) >= maxTried {
		t.types, t.keys = make(map[string]int), make(map[string]int)
	}
	t.count++
	t.types[it.Type] = t.count
	t.keys[keyOrID(it)] = t.count
}

// prefers reports whether the next probe is rather a than b, which waits in front of it: the type that failed longest
// ago or never, then such a key. Among equals, the first and the last one take turns: what waits behind a row of
// notifications that the sink refuses may be something else.
func (t *tried) prefers(a, b *item) bool {
	if x, y := t.types[a.Type], t.types[b.Type]; x != y {
		return x < y
	}
	if x, y := t.keys[keyOrID(a)], t.keys[keyOrID(b)]; x != y {
		return x < y
	}
	return t.count%2 == 0
}
