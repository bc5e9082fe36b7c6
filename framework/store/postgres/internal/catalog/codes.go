package catalog

import (
	"errors"
	"slices"
)

// DeniedPrivilege is the code for a missing privilege.
const DeniedPrivilege = "42501"

// Refused reports whether the server refused a statement with one of the codes of PostgreSQL's
// manual, appendix A. All drivers return them as SQLState.
func Refused(err error, codes ...string) bool {
	state := SQLState(err)
	return state != "" && slices.Contains(codes, state)
}

// SQLState returns the code of the server's error, or "".
func SQLState(err error) string {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	return coded.SQLState()
}
