package settings

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/internal/duration"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
)

// Keep is what a collection delivers of its members.
type Keep string

// What a collection delivers.
const (
	// KeepAll delivers all members as one delivery. It is the default.
	KeepAll Keep = "all"
	// KeepNewest delivers only the last member. The others are settled as superseded.
	KeepNewest Keep = "newest"
)

// ByMark, as Collect.By, groups by what a publisher has set with outbox.Collect.
const ByMark = "collect"

const byKey = "key"

// Collect makes one delivery of several notifications of a group. The zero value makes none.
//
// The first member opens a collection. It is due Wait after its last member, MaxWait after its first, or
// when it has Size members. A notification for which By is empty or fails is delivered alone.
type Collect struct {
	// What notifications are collected by: an expression, as in routes, such as metadata.recipient; or
	// collect, for the group that the publisher has set. Default: the key.
	By string `yaml:"by"`
	// What is delivered: all notifications as one delivery, or the newest alone. Default all.
	Keep Keep `yaml:"keep" enum:"all,newest"`
	// How long a collection waits after its last notification. It is required.
	Wait time.Duration `yaml:"wait" zero:"required"`
	// How long a collection waits after its first notification. Default: ten times wait; for the newest of a
	// key at most 2m, unless wait is longer.
	MaxWait time.Duration `yaml:"max_wait" zero:"refused"`
	// With how many notifications a collection is due, 1 to 10000. Default 100 with keep: all; with keep:
	// newest no limit.
	Size int `yaml:"size" zero:"refused"`
}

const (
	// DefaultCollectSize is the default of Collect.Size with KeepAll.
	DefaultCollectSize = 100
	// MaxCollectSize is the largest Collect.Size.
	MaxCollectSize = 10_000
	// collectWaits is the default of Collect.MaxWait, in times of Collect.Wait.
	collectWaits = 10
)

// On reports whether anything is collected.
func (c Collect) On() bool { return c != (Collect{}) }

// WithDefaults returns the setting with the defaults of unset fields.
func (c Collect) WithDefaults() Collect {
	if !c.On() {
		return c
	}
	c.Keep = cmp.Or(c.Keep, KeepAll)
	if c.MaxWait == 0 {
		c.MaxWait = collectWaits * min(c.Wait, math.MaxInt64/collectWaits)
		if c.Keep == KeepNewest && c.IsByKey() && c.Wait <= LongestInMemory {
			c.MaxWait = min(c.MaxWait, LongestInMemory)
		}
	}
	if c.Keep == KeepAll {
		c.Size = cmp.Or(c.Size, DefaultCollectSize)
	}
	return c
}

// String returns the rule in words.
func (c Collect) String() string {
	if !c.On() {
		return ""
	}
	c = c.WithDefaults()
	text := fmt.Sprintf("%s by %s, after %s, at most %s", c.Keep, cmp.Or(c.By, byKey), duration.Text(c.Wait), duration.Text(c.MaxWait))
	if c.Size > 0 {
		text += fmt.Sprintf(" or %d", c.Size)
	}
	return text
}

// LongestInMemory is the longest MaxWait with which collections are not written to the database. The cursor
// waits for them, so it must be well below the time after which a sink counts as late.
const LongestInMemory = 2 * time.Minute

// InMemory reports whether a collection is not written to the database: a crash reads its members again from
// the log. That is so if only the newest notification of a key counts, and soon. The cursor waits for it.
func (c Collect) InMemory() bool {
	return c.Keep == KeepNewest && c.IsByKey() && c.MaxWait <= LongestInMemory
}

// IsByKey reports whether groups are keys, so that each has all its members in one lane.
func (c Collect) IsByKey() bool { return c.By == "" || c.By == byKey }

// Group returns the compiled form of By; nil stands for the key. It fails with route.ErrExpression.
func (c Collect) Group() (*route.Text, error) {
	if c.IsByKey() {
		return nil, nil
	}
	if c.By == ByMark {
		return route.CompileText(`metadata["` + notification.MetadataCollect + `"] ?? ""`)
	}
	return route.CompileText(c.By)
}

func (c Collect) validate(p *Problems, at string) {
	if !c.On() {
		return
	}
	p.Require(c.Keep == KeepAll || c.Keep == KeepNewest, "%s.keep is %q: use %s or %s", at, c.Keep, KeepAll, KeepNewest)
	p.Require(c.Wait != 0, "%s.wait is missing: say how long a collection waits after its last notification, such as 10m", at)
	p.Require(c.Wait >= 0, "%s.wait is %s: use more than 0", at, duration.Text(c.Wait))
	p.Require(c.MaxWait >= c.Wait || c.Wait < 0, "%s.max_wait is %s, less than wait %s: a collection would never wait that long", at, duration.Text(c.MaxWait), duration.Text(c.Wait))
	p.Require(c.Size >= 0 && c.Size <= MaxCollectSize, "%s.size is %d: use 1 to %d", at, c.Size, MaxCollectSize)
	if _, err := c.Group(); err != nil {
		p.Add(fmt.Errorf("%s.by: %w", at, err))
	}
}
