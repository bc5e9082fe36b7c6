//go:build !linux

package doctor

// Only Linux reports these.
func diskOf(string) (free, all int64, known bool)   { return 0, 0, false }
func fileSystem(string) (number uint32, known bool) { return 0, false }

var networkFileSystems map[uint32]string
