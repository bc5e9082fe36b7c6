package mysql

import (
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// CheckVersion checks a result of VERSION() like Open.
func CheckVersion(text string) error {
	_, err := session.ParseServer(text)
	return err
}

// Holes returns the number of a target's undecided offsets.
func Holes(t store.Target) int64 { return store.CountOffsets(t.(*target).at.holes) }

// CheckTopology checks the variables of a server like Open.
func CheckTopology(variables map[string]string) error {
	return session.CheckTopology(func(name string) (string, error) { return variables[name], nil })
}

// Advise adds a hint to an error with a known number.
func Advise(err error) error { return session.Advise(err) }

// SetVoidAfter makes the store fill gaps sooner.
func (s *Store) SetVoidAfter(d time.Duration) { s.voidAfter = d }

// Runner returns what runs the store's statements.
func (s *Store) Runner() *tables.Runner { return s.run }
