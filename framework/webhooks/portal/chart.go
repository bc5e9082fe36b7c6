package portal

import (
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// chartHours is how many hours a chart has, the present one included.
const chartHours = 24

// barHeight is the height of the tallest bar; the page stretches the drawing. That of a bar of few attempts is at
// least leastBar, so that it can be seen.
const (
	barHeight = 60
	leastBar  = 2
)

// chart counts the attempts at an endpoint over the last day, by hour.
type chart struct {
	Bars              [chartHours]bar
	Succeeded, Failed int
	Most              int // in an hour
}

// bar is an hour. Tall is the height of all attempts, and Good that of those that succeeded.
type bar struct {
	Begins            time.Time
	Succeeded, Failed int
	X, Tall, Good     int
}

// chartBegins returns the beginning of the first hour of a chart.
func chartBegins(now time.Time) time.Time {
	return now.UTC().Truncate(time.Hour).Add(-(chartHours - 1) * time.Hour)
}

func chartOf(hours []store.AttemptHour, now time.Time) (c chart) {
	begins := chartBegins(now)
	for _, h := range hours {
		if i := h.Begins.Sub(begins) / time.Hour; i >= 0 && i < chartHours {
			c.Bars[i].Succeeded, c.Bars[i].Failed = h.Succeeded, h.Failed
			c.Succeeded += h.Succeeded
			c.Failed += h.Failed
			c.Most = max(c.Most, h.Succeeded+h.Failed)
		}
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Begins, b.X = begins.Add(time.Duration(i)*time.Hour), i*10
		b.Good, b.Tall = c.tall(b.Succeeded), c.tall(b.Succeeded+b.Failed)
		if b.Failed > 0 {
			b.Good = min(b.Good, b.Tall-leastBar)
		}
	}
	return c
}

func (c *chart) tall(n int) int {
	if n == 0 {
		return 0
	}
	return max(n*barHeight/c.Most, 2*leastBar)
}

// Rate is the part of the attempts that succeeded, in percent, rounded down so that 100 means all.
func (c chart) Rate() int { return c.Succeeded * 100 / max(c.All(), 1) }

// All is the number of attempts.
func (c chart) All() int { return c.Succeeded + c.Failed }
