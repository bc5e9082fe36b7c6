package forwarder

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// Rate bounds how many deliveries to a sink begin in a time, over all forwarders:
// each has the part of the rate that its lanes are of the sink's. The zero value
// is no bound. As text it is "50/s" or "50/s, burst 100", with s, m or h.
type Rate struct {
	// Events are let through in each Per.
	Events float64
	Per    time.Duration
	// Burst is how many may go at once after a pause; default: those of a second, at
	// least 1.
	Burst int
}

// rateUnits are what a rate may be per.
var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// ParseRate reads a rate as it stands in a configuration. The error tells what
// would be right.
func ParseRate(text string) (Rate, error) {
	wrong := fmt.Errorf("%q is no rate: use 50/s, 100/m or 1000/h, and to let more go at once after a pause 50/s, burst 100", text)
	amount, burst, hasBurst := strings.Cut(text, ",")
	number, unit, _ := strings.Cut(strings.TrimSpace(amount), "/")
	events, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	per := rateUnits[strings.TrimSpace(unit)]
	if err != nil || per == 0 || math.IsNaN(events) || math.IsInf(events, 0) {
		return Rate{}, wrong
	}
	r := Rate{Events: events, Per: per}
	if hasBurst {
		name, count, _ := strings.Cut(strings.TrimSpace(burst), " ")
		if r.Burst, err = strconv.Atoi(strings.TrimSpace(count)); err != nil || name != "burst" || r.Burst < 1 {
			return Rate{}, wrong
		}
	}
	if events <= 0 {
		return Rate{}, fmt.Errorf("%q lets nothing through: use more than 0, or pause the sink", text)
	}
	return r, nil
}

// UnmarshalText reads a rate as ParseRate does.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// String writes a rate as ParseRate reads it; "" for none.
func (r Rate) String() string {
	if r == (Rate{}) {
		return ""
	}
	text := strconv.FormatFloat(r.Events, 'g', -1, 64) + "/" + r.Per.String()
	for name, unit := range rateUnits {
		if r.Per == unit {
			text = strconv.FormatFloat(r.Events, 'g', -1, 64) + "/" + name
		}
	}
	if r.Burst > 0 {
		text += ", burst " + strconv.Itoa(r.Burst)
	}
	return text
}

func (r Rate) validate(p *problems, at string) {
	if r == (Rate{}) {
		return
	}
	p.require(r.Events > 0 && !math.IsInf(r.Events, 0) && r.Per > 0 && r.Burst >= 0,
		"%s is %g in %s, burst %d: use more than 0, and a burst of at least 1", at, r.Events, r.Per, r.Burst)
}

// limiter bounds a sink's rate; nil is no bound. It is guarded by its courier's
// mutex.
type limiter struct {
	rate   Rate
	bucket *rate.Limiter
}

func newLimiter(r Rate) *limiter {
	if r == (Rate{}) {
		return nil
	}
	return &limiter{r, rate.NewLimiter(0, 1)}
}

// share sets the part of the rate that this forwarder has, 0 to 1.
func (l *limiter) share(part float64, now time.Time) {
	if l == nil {
		return
	}
	perSecond := l.rate.Events / l.rate.Per.Seconds()
	burst := float64(l.rate.Burst)
	if burst == 0 {
		burst = perSecond
	}
	fresh := l.bucket.Limit() == 0
	l.bucket.SetLimitAt(now, rate.Limit(perSecond*part))
	l.bucket.SetBurstAt(now, int(min(max(1, burst*part), math.MaxInt32)))
	if fresh { // it begins full
		l.bucket = rate.NewLimiter(l.bucket.Limit(), l.bucket.Burst())
	}
}

// has says whether n deliveries, or as many as may ever go at once, may begin now.
func (l *limiter) has(n int, now time.Time) bool {
	return l == nil || l.bucket.TokensAt(now) >= float64(min(n, l.bucket.Burst()))
}

// admit returns how many of n deliveries may begin now; none until a time.
func (l *limiter) admit(n int, now time.Time) (admitted int, until time.Time) {
	if l == nil {
		return n, time.Time{}
	}
	tokens := l.bucket.TokensAt(now)
	if n = min(n, int(tokens)); n >= 1 {
		l.bucket.AllowN(now, n)
		return n, time.Time{}
	}
	missing := min((1-tokens)/float64(l.bucket.Limit()), time.Hour.Seconds())
	return 0, now.Add(max(time.Millisecond, time.Duration(missing*float64(time.Second))))
}
