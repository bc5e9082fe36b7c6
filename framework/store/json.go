package store

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// CheckJSON reports why a text is not JSON in UTF-8. JSON that is nested deeper than 10,000 levels is
// refused too.
func CheckJSON(text []byte) error {
	switch {
	case !json.Valid(text):
		return errors.New("it is not valid JSON")
	case !utf8.Valid(text):
		return errors.New("its text is not UTF-8")
	}
	return nil
}
