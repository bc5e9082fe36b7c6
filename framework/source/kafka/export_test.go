package kafka

// KeepAtMost bounds what all readers keep.
func (s *Source) KeepAtMost(bytes int64) { s.kept.most = bytes }

// Kept is what all readers keep.
func (s *Source) Kept() int64 { return s.kept.bytes.Load() }
