// Package zones finds time zones by name.
package zones

import (
	"errors"
	"fmt"
	"time"
)

// Load returns a zone of the IANA database. Its error says what to use instead.
func Load(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("zone Local differs between machines: name the zone, as in Europe/Berlin")
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q: %w: use a name of the IANA database, such as Europe/Berlin; a program on a machine without that database imports time/tzdata", name, err)
	}
	return location, nil
}
