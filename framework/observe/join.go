package observe

import (
	"slices"

	"github.com/waybill-go/waybill/framework/event"
)

// Join returns an observer that reports to several observers, in order. It leaves out nil ones, and
// returns nil if there are no others.
func Join(observers ...event.Observer) event.Observer {
	all := slices.DeleteFunc(slices.Clone(observers), func(o event.Observer) bool { return o == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return event.Func(func(e event.Event) {
		for _, o := range all {
			o.Observe(e)
		}
	})
}
