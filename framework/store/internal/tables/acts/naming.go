package acts

import (
	"context"
	"database/sql"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// actionsNaming returns the actions whose filter or reason names an id or a key.
func (t *Acts) actionsNaming(ctx context.Context, q tables.Querier, f store.PersonalFilter) (ids []string, err error) {
	given := slices.Concat(f.IDs, f.Keys)
	if len(given) == 0 {
		return nil, nil
	}
	names := anyWord(given)
	err = t.run.Each(ctx, q, func(rows *sql.Rows) error {
		var id, reason string
		var filter []byte
		err := rows.Scan(&id, &reason, &filter)
		var about any
		if err == nil && json.Unmarshal(filter, &about) != nil {
			about = string(filter)
		}
		if err == nil && (names.MatchString(reason) || isNamed(about, names)) {
			ids = append(ids, id)
		}
		return err
	}, `SELECT id, reason, filter FROM {actions} {whole actions}`)
	return ids, err
}

// impersonal are the members of an action's filter that name no notification and no person.
var impersonal = []string{"sink", "sinks", "type", "types", "states", "routed"}

// isNamed reports whether a text in JSON matches.
func isNamed(value any, names *regexp.Regexp) bool {
	switch value := value.(type) {
	case string:
		return names.MatchString(value)
	case []any:
		return slices.ContainsFunc(value, func(item any) bool { return isNamed(item, names) })
	case map[string]any:
		for member, item := range value {
			if !slices.Contains(impersonal, member) && isNamed(item, names) {
				return true
			}
		}
	}
	return false
}

// anyWord matches a text with one of the names and no letter or digit directly beside it: the key 42 is not in
// order-420.
func anyWord(names []string) *regexp.Regexp {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return regexp.MustCompile(`(^|[^\pL\pN])(` + strings.Join(quoted, `|`) + `)($|[^\pL\pN])`)
}
