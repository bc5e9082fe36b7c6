package policy

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/waybill-go/waybill/framework/settings"
)

// Limiter applies a Rate: it lets deliveries begin as tokens become available, up to a burst. nil
// means no bound. It is not safe for concurrent use.
type Limiter struct {
	rate   settings.Rate
	bucket *rate.Limiter
}

// NewLimiter returns nil for no bound. Until Share is called, nothing may begin.
func NewLimiter(r settings.Rate) *Limiter {
	if r == (settings.Rate{}) {
		return nil
	}
	return &Limiter{r, rate.NewLimiter(0, 1)}
}

// Share sets this forwarder's part of the rate, 0 to 1.
func (l *Limiter) Share(part float64, now time.Time) {
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
	if fresh { // the bucket begins full
		l.bucket = rate.NewLimiter(l.bucket.Limit(), l.bucket.Burst())
	}
}

// Has reports whether n deliveries, or at least a full burst, may begin now.
func (l *Limiter) Has(n int, now time.Time) bool {
	return l == nil || l.bucket.TokensAt(now) >= float64(min(n, l.bucket.Burst()))
}

// Admit returns how many of n deliveries may begin now, and takes their tokens. If it returns 0,
// until is when to try again.
func (l *Limiter) Admit(n int, now time.Time) (admitted int, until time.Time) {
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
