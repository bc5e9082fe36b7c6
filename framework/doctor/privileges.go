package doctor

import (
	"cmp"
	"context"
	"strings"

	"github.com/waybill-go/waybill/framework/store/postgres"
)

// privileged is an Examiner that knows what a role lacks.
type privileged interface {
	Missing(ctx context.Context, d postgres.Duty) ([]string, error)
}

func checkPrivileges(ctx context.Context, x *examination) (verdict, error) {
	if x.pg.Schema(ctx) != nil && x.closed != nil && !postgres.IsDenied(x.closed) {
		return skip("there are no tables of this version: see schema", ""), nil
	}
	duties := []postgres.Duty{cmp.Or(x.Duty, postgres.Forwarder)}
	if x.Duty == "" && len(x.Schedules) > 0 {
		duties = append(duties, postgres.Scheduler)
	}
	return lacking(ctx, x.pg, x.Duty != "", duties...)
}

// lacking says what a role lacks for duties; sure: it is known to have them.
func lacking(ctx context.Context, server privileged, sure bool, duties ...postgres.Duty) (verdict, error) {
	var missing, names []string
	for _, d := range duties {
		lacks, err := server.Missing(ctx, d)
		if err != nil {
			return verdict{}, err
		}
		missing, names = append(missing, lacks...), append(names, string(d))
	}
	list, fix := strings.Join(names, " and "), strings.Join(missing, "\n")
	switch {
	case len(missing) == 0:
		return ok("the role has those of a %s", list), nil
	case sure:
		return fail(fix, "the role lacks %d of those of a %s", len(missing), list), nil
	}
	return skip("the role is not one of a "+list, fix), nil
}
