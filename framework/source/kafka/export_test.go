package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
)

// KeepAtMost limits what all readers keep.
func (s *Source) KeepAtMost(bytes int64) { s.kept.most = bytes }

// Kept returns how much all readers keep.
func (s *Source) Kept() int64 { return s.kept.bytes.Load() }

// Envelope returns the envelope of a record.
func (s *Source) Envelope(r *kgo.Record) notification.Envelope { return s.envelope(r) }

// SetTimeout sets how long one request to the cluster may take.
func (c *Config) SetTimeout(d time.Duration) { c.timeout = d }
