package mysql

import "github.com/waybill-go/waybill/framework/store"

// CheckVersion is what Open makes of VERSION().
func CheckVersion(text string) error {
	_, err := parseServer(text)
	return err
}

// Holes are the offsets of which a target does not know yet whether a row comes.
func Holes(t store.Target) int64 { return store.CountOffsets(t.(*target).at.holes) }

// CheckTopology judges a server by its variables.
func CheckTopology(variables map[string]string) error {
	return checkTopology(func(name string) (string, error) { return variables[name], nil })
}
