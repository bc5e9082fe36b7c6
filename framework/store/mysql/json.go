package mysql

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// How deep MySQL and MariaDB let JSON be nested, by the CHECK of a payload.
const (
	depthMySQL   = 100
	depthMariaDB = 31
)

// CheckPayload reports why the payload column would refuse a payload.
func (s *Store) CheckPayload(payload []byte) error {
	if s.binary {
		return nil
	}
	depth := depthMySQL
	if s.family.Name == session.Families[1].Name {
		depth = depthMariaDB
	}
	return checkJSON(payload, depth)
}

// checkJSON refuses what is not JSON, and the JSON that JSON_VALID does not accept: nested too deep,
// with half a surrogate pair, or with a number that no float64 can hold.
func checkJSON(text []byte, depth int) error {
	if err := store.CheckJSON(text); err != nil {
		return err
	}
	level := 0
	for len(text) > 0 {
		size := 1
		switch c := text[0]; {
		case c == '[' || c == '{':
			if level++; level > depth {
				return fmt.Errorf("it is nested deeper than %d levels", depth)
			}
		case c == ']' || c == '}':
			level--
		case c == '"':
			var whole bool
			if size, whole = stringAt(text); !whole {
				return fmt.Errorf("%.40s has half a surrogate pair", text[:size])
			}
		case c == '-' || c >= '0' && c <= '9':
			size = len(text) - len(bytes.TrimLeft(text, "+-.eE0123456789"))
			if f, _ := strconv.ParseFloat(string(text[:size]), 64); math.IsInf(f, 0) {
				return fmt.Errorf("the number %.20s is too large", text[:size])
			}
		}
		text = text[size:]
	}
	return nil
}

// stringAt returns the size of the string at the beginning of JSON, and whether its surrogates are in
// pairs.
func stringAt(text []byte) (size int, whole bool) {
	whole = true
	high := rune(0) // the first half of a pair
	for i := 1; ; i++ {
		r := rune(0)
		switch {
		case text[i] == '"':
			return i + 1, whole && high == 0
		case text[i] == '\\' && text[i+1] == 'u':
			code, _ := strconv.ParseUint(string(text[i+2:i+6]), 16, 16)
			r = rune(code)
			i += 5
		case text[i] == '\\':
			i++
		}
		switch isSurrogate := utf16.IsSurrogate(r); {
		case high != 0:
			whole = whole && utf16.DecodeRune(high, r) != '\uFFFD'
			high = 0
		case isSurrogate && r < 0xDC00:
			high = r
		case isSurrogate:
			whole = false
		}
	}
}
