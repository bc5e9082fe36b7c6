package policy

import (
	"time"

	"github.com/waybill-go/waybill/framework/settings"
)

// Settings are the settings of one sink, with their defaults. They can change while it runs.
type Settings struct {
	Parallelism settings.Parallelism
	Retry       settings.Retry
	OnDead      settings.OnDead
	Timeout     time.Duration
	Rate        settings.Rate
	Breaker     settings.Breaker
	Hours       settings.Hours
	// Fairness is the name of the metadata whose values share the sink; "" for none.
	Fairness string
}
