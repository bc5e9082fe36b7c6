package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/lib/pq"
)

func checkHeld(ctx context.Context, x *examination) (verdict, error) {
	if x.my != nil {
		return checkMySQLHeld(ctx, x)
	}
	found, hidden, err := x.pg.Holdings(ctx, x.HeldAfter)
	if err != nil {
		return verdict{}, err
	}
	var texts, fixes []string
	for _, h := range found {
		texts = append(texts, fmt.Sprintf("pid %d of %s, %s, for %s: %s", h.PID, cmp.Or(h.Application, "an unnamed application"), h.State, age(h.Age), oneLine(h.Query, 80)))
		fixes = append(fixes, fmt.Sprintf("SELECT pg_terminate_backend(%d);", h.PID))
	}
	if len(found) > 0 {
		return warn(strings.Join(fixes, "\n"), "%d open for more than %s: %s", len(found), x.HeldAfter, some(texts)), nil
	}
	if hidden > 0 {
		role, err := x.pg.Role(ctx)
		return skip(fmt.Sprintf("the role cannot see %d sessions of other roles", hidden), fmt.Sprintf(readStats, role)), err
	}
	return ok("none is open for more than %s", x.HeldAfter), nil
}

func checkPrepared(ctx context.Context, x *examination) (verdict, error) {
	if x.my != nil {
		return checkMySQLPrepared(ctx, x)
	}
	found, err := x.pg.Prepared(ctx, x.HeldAfter)
	if err != nil {
		return verdict{}, err
	}
	var texts, fixes []string
	for _, p := range found {
		texts = append(texts, fmt.Sprintf("%s for %s", p.GID, age(p.Age)))
		fixes = append(fixes, "ROLLBACK PREPARED "+pq.QuoteLiteral(p.GID)+";")
	}
	if len(found) > 0 {
		return warn(strings.Join(fixes, "\n"), "%d prepared for more than %s: %s", len(found), x.HeldAfter, some(texts)), nil
	}
	return ok("none is prepared for more than %s", x.HeldAfter), nil
}

func checkSlots(ctx context.Context, x *examination) (verdict, error) {
	slots, err := x.pg.Slots(ctx)
	if err != nil {
		return verdict{}, err
	}
	var texts, fixes []string
	for _, s := range slots {
		switch {
		case s.Status == "lost":
			texts = append(texts, s.Name+" has lost the write-ahead log that it should keep")
		case !s.Active:
			texts = append(texts, fmt.Sprintf("%s has no reader and keeps %s", s.Name, size(s.Kept)))
		case s.Kept > x.slot:
			texts = append(texts, fmt.Sprintf("%s is %s behind", s.Name, size(s.Kept)))
			continue
		default:
			continue
		}
		fixes = append(fixes, "SELECT pg_drop_replication_slot("+pq.QuoteLiteral(s.Name)+");")
	}
	if len(texts) > 0 {
		return warn(strings.Join(fixes, "\n"), "%s", some(texts)), nil
	}
	return ok("%s, none without a reader", count(len(slots), "slot")), nil
}

// oneLine returns text without line breaks, cut to a number of characters.
func oneLine(text string, most int) string {
	characters := []rune(strings.Join(strings.Fields(text), " "))
	if len(characters) > most {
		return string(characters[:most]) + "…"
	}
	return string(characters)
}
