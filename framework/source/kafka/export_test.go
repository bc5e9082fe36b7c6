package kafka

// KeepAtMost limits what all readers keep.
func (s *Source) KeepAtMost(bytes int64) { s.kept.most = bytes }

// Kept returns how much all readers keep.
func (s *Source) Kept() int64 { return s.kept.bytes.Load() }
