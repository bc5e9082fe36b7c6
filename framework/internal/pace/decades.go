package pace

import "sync/atomic"

// Decades counts what may happen for each of many notifications, and says when to log it. The zero value has counted
// nothing. It is safe for concurrent use.
type Decades struct{ n atomic.Int64 }

// Count counts one more. It says to log the first, the tenth, the hundredth, and so on.
func (d *Decades) Count() (n int64, logs bool) {
	n = d.n.Add(1)
	first := n
	for first > 1 && first%10 == 0 {
		first /= 10
	}
	return n, first == 1
}
