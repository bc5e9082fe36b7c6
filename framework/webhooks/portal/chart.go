package portal

import (
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// chartHours is how many hours a chart has, the present one included.
const chartHours = 24

// Size of a chart's drawing, which the page stretches: each hour has barStep, and the tallest bar barHeight.
const (
	barStep   = 10
	barWidth  = 8
	barHeight = 60
	// leastBar is the height of a bar of few attempts, so that it can be seen.
	leastBar = 2
)

// chart counts the attempts at an endpoint over the last day, by hour.
type chart struct {
	Bars              []bar
	Succeeded, Failed int
	Most              int // in an hour
	Width, Height     int
}

// bar is an hour. The failed attempts stand on those that succeeded.
type bar struct {
	Begins                    time.Time
	Succeeded, Failed         int
	X, Width                  int
	TopSucceeded, TopFailed   int // from the top of the drawing
	TallSucceeded, TallFailed int
}

// chartBegins returns the beginning of the first hour of a chart.
func chartBegins(now time.Time) time.Time {
	return now.UTC().Truncate(time.Hour).Add(-(chartHours - 1) * time.Hour)
}

func chartOf(hours []store.AttemptHour, now time.Time) chart {
	c := chart{Bars: make([]bar, chartHours), Width: chartHours * barStep, Height: barHeight}
	for i := range c.Bars {
		c.Bars[i] = bar{Begins: chartBegins(now).Add(time.Duration(i) * time.Hour), X: i*barStep + (barStep-barWidth)/2, Width: barWidth}
	}
	for _, h := range hours {
		i := int(h.Begins.Sub(chartBegins(now)) / time.Hour)
		if i < 0 || i >= chartHours || h.Begins.Before(chartBegins(now)) {
			continue
		}
		c.Bars[i].Succeeded, c.Bars[i].Failed = h.Succeeded, h.Failed
		c.Succeeded += h.Succeeded
		c.Failed += h.Failed
		c.Most = max(c.Most, h.Succeeded+h.Failed)
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		b.TallSucceeded, b.TallFailed = c.tall(b.Succeeded), c.tall(b.Failed)
		b.TallSucceeded = min(b.TallSucceeded, barHeight-b.TallFailed)
		b.TopSucceeded = barHeight - b.TallSucceeded
		b.TopFailed = b.TopSucceeded - b.TallFailed
	}
	return c
}

func (c *chart) tall(n int) int {
	if n == 0 {
		return 0
	}
	return max(n*barHeight/c.Most, leastBar)
}

// Rate is the part of the attempts that succeeded, in percent, rounded down so that 100 means all.
func (c chart) Rate() int { return c.Succeeded * 100 / max(c.Succeeded+c.Failed, 1) }

// All is the number of attempts.
func (c chart) All() int { return c.Succeeded + c.Failed }
